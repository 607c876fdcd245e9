// Preloaded where leaks are looked for: modules stay loaded, so that a leak's stack can name them.
int dlclose(void* handle) {
  (void)handle;
  return 0;
}
