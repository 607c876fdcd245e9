/* Trains a toy: finds W with |W - T|^2 smallest.
 * Arguments: [trainer trainers [grpc|mpi [address]]].
 *
 *   mpirun -np 2 dmuond &
 *   dmuon_example
 *
 * or, on channel mpi: mpirun -np 2 dmuond : -np 1 dmuon_example 0 1 mpi
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cpp/dmuon_client.h"

enum { kRows = 8, kCols = 16, kElements = kRows * kCols, kSteps = 100 };

static const char kSpec[] =
    "{\"groups\": {\"muon\": {\"lr\": 0.1, \"scale\": \"original\", \"momentum\": 0.9}},"
    " \"parameters\": [{\"name\": \"w\", \"shape\": [8, 16]}]}";

static void check(dmuon_status status) {
  if (status != DMUON_OK) {
    fprintf(stderr, "dmuon_example: %s\n", dmuon_last_error());
    exit(1);
  }
}

/* The loss; `gradient` becomes its derivative by w. */
static double loss_of(const float* w, const float* target, float* gradient) {
  double loss = 0;
  for (int i = 0; i < kElements; ++i) {
    const float difference = w[i] - target[i];
    loss += difference * difference;
    gradient[i] = 2 * difference;
  }
  return loss;
}

static double train(dmuon_session* session, float* w, const float* target) {
  float gradient[kElements];
  for (int i = 0; i < kSteps; ++i) {
    dmuon_group_values values;
    dmuon_step_report report;
    dmuon_group_values_init(&values, "muon");
    values.lr = 0.1 * (kSteps - i) / kSteps;
    const double loss = loss_of(w, target, gradient);
    check(dmuon_begin_step(session, &values, 1, 1.0, NULL));
    check(dmuon_push(session, "w", gradient, sizeof(gradient), 1));
    check(dmuon_step(session, &report));
    if (i % 20 == 0) printf("step %d loss %.6f grad_norm %.4f\n", i, loss, report.grad_norm);
  }
  return loss_of(w, target, gradient);
}

int main(int argc, char** argv) {
  float w[kElements] = {0};
  float target[kElements];
  for (int i = 0; i < kElements; ++i) target[i] = (float)((i * 37 % 64) - 32) / 32.0f;

  dmuon_options options;
  dmuon_options_init(&options);
  if (argc > 2) {
    options.trainer = (uint32_t)atoi(argv[1]);
    options.trainers = (uint32_t)atoi(argv[2]);
  }
  const int use_mpi = argc > 3 && strcmp(argv[3], "mpi") == 0;
  options.channel = use_mpi ? DMUON_CHANNEL_MPI : DMUON_CHANNEL_GRPC;
  if (argc > 4) options.address = argv[4];
  if (use_mpi) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  }

  const dmuon_parameter parameter = {"w", w, sizeof(w), NULL, NULL, 0};
  dmuon_session* session = NULL;
  check(dmuon_open(kSpec, &parameter, 1, &options, &session));
  const double loss = train(session, w, target);
  check(dmuon_close(session));
  printf("final loss %.6f\n", loss);
  if (use_mpi) MPI_Finalize();
  return loss < 0.05 ? 0 : 1;
}
