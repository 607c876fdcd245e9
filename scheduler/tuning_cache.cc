#include "scheduler/tuning_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "proto/file_error.h"
#include "proto/session_spec.h"
#include "proto/temporary_file.h"
#include "scheduler/tuning_format.h"

namespace dmuon::scheduler {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;
constexpr int kMaxDepth = 8;

// A descriptor that is closed with the object.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~OpenFile() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Held by one process at a time; the system releases it when its holder dies.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : file_(path + ".lock", O_RDWR | O_CREAT) {
    if (file_.fd() < 0) {
      FailWithErrno(path + ".lock", "cannot be opened; the cache's directory must be writable");
    }
    while (flock(file_.fd(), LOCK_EX) != 0) {
      if (errno != EINTR) {
        FailWithErrno(path + ".lock", "cannot be locked");
      }
    }
  }

 private:
  OpenFile file_;
};

[[noreturn]] void RefuseFile(const std::string& path, const std::string& why) {
  throw TuningCacheError(path + ": " + why +
                         "; it was left as it is: move it away or name another file");
}

std::string ReadAll(const std::string& path, int fd, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd, text.data() + done, text.size() - done);
    if (got < 0 && errno != EINTR) {
      FailWithErrno(path, "cannot be read");
    }
    if (got == 0) {
      break;
    }
    done += got > 0 ? static_cast<size_t>(got) : 0;
  }
  text.resize(done);
  return text;
}

// None where there is no such file.
std::optional<std::string> ReadTextOf(const std::string& path) {
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);
  if (file.fd() < 0 && errno == ENOENT) {
    return std::nullopt;
  }
  struct stat status = {};
  if (file.fd() < 0 || fstat(file.fd(), &status) != 0) {
    FailWithErrno(path, "cannot be opened");
  }
  if (!S_ISREG(status.st_mode)) {
    RefuseFile(path, "is not a regular file");
  }
  if (status.st_size > kMaxBytes) {
    RefuseFile(path, "is larger than 64 MiB, which no tuning cache is");
  }
  return ReadAll(path, file.fd(), status.st_size);
}

// The file's root, or that of an empty cache.
Json ReadRoot(const std::string& path) {
  const std::optional<std::string> text = ReadTextOf(path);
  if (!text) {
    return EmptyTuningRoot();
  }
  try {
    Json root = ParseStrictJson(*text, kMaxDepth);
    CheckTuningRoot(root);
    return root;
  } catch (const SpecError& error) {
    RefuseFile(path, std::string("is no tuning cache: ") + error.what());
  }
}

}  // namespace

bool TuningCache::Exists() const { return access(path_.c_str(), F_OK) == 0; }

std::optional<TuningEntry> TuningCache::Read(const kernels::DeviceIdentity& device) const {
  const Json root = ReadRoot(path_);
  try {
    return ReadTuningEntry(root, TuningKey(device));
  } catch (const SpecError& error) {
    RefuseFile(path_, error.what());
  }
}

std::vector<std::string> TuningCache::Keys() const { return TuningKeysOf(ReadRoot(path_)); }

void TuningCache::CheckWritable() const {
  const FileLock lock(path_);
  ReadRoot(path_);
  TemporaryFile(path_, path_ + ".tmp");
}

void TuningCache::Merge(const kernels::DeviceIdentity& device, const TuningEntry& measured) const {
  const FileLock lock(path_);
  Json root = ReadRoot(path_);
  const std::string key = TuningKey(device);
  try {
    ReadTuningEntry(root, key);  // refuses an entry that is damaged
  } catch (const SpecError& error) {
    RefuseFile(path_, error.what());
  }
  MergeTuningEntry(device, key, measured, &root);
  const std::string text = root.dump(1) + "\n";
  TemporaryFile file(path_, path_ + ".tmp");  // of whoever holds the lock
  file.Write(text.data(), text.size());
  file.SyncAndRename();
}

kernels::ExecutionTable ExecutionTableOf(const TuningEntry& entry) {
  kernels::ExecutionTable table;
  for (const TuningRecord& record : entry.records) {
    table.Set(record.measured, record.choice);
  }
  return table;
}

}  // namespace dmuon::scheduler
