/* dmuond's C interface: hands gradients to the daemon and gets updated parameters back.
 *
 * Functions return a dmuon_status; after anything but DMUON_OK, dmuon_last_error() says in one line
 * what was wrong and what to do. A session is used by one thread, in the process that opened it.
 */
#ifndef DMUON_CLIENT_H_
#define DMUON_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DMUON_API __attribute__((visibility("default")))

/* The numbers are those of gRPC. */
typedef enum dmuon_status {
  DMUON_OK = 0,
  DMUON_CANCELLED = 1,
  DMUON_INVALID_ARGUMENT = 3,
  DMUON_DEADLINE_EXCEEDED = 4,
  DMUON_NOT_FOUND = 5,
  DMUON_ALREADY_EXISTS = 6,
  DMUON_PERMISSION_DENIED = 7,
  DMUON_RESOURCE_EXHAUSTED = 8,
  DMUON_FAILED_PRECONDITION = 9, /* a call at the wrong time */
  DMUON_ABORTED = 10,            /* the step was aborted, or the session failed */
  DMUON_UNIMPLEMENTED = 12,
  DMUON_INTERNAL = 13,
  DMUON_UNAVAILABLE = 14 /* nobody answers, or the daemon has ended */
} dmuon_status;

typedef enum dmuon_channel {
  DMUON_CHANNEL_AUTO = 0,
  DMUON_CHANNEL_GRPC = 1,
  DMUON_CHANNEL_MPI = 2 /* needs MPI_Init_thread with MPI_THREAD_MULTIPLE */
} dmuon_channel;

typedef enum dmuon_contribution {
  DMUON_CONTRIBUTION_PARTIAL = 0, /* gradients are still to be reduced over the trainers */
  DMUON_CONTRIBUTION_REPLICA = 1  /* all trainers push the same, already reduced ones */
} dmuon_contribution;

typedef enum dmuon_outcome {
  DMUON_COMMITTED = 1,
  DMUON_SKIPPED = 2,     /* something was not finite; nothing changed, the number is used up */
  DMUON_STEP_ABORTED = 3 /* state as before; dmuon_begin_step repeats the same step */
} dmuon_outcome;

typedef struct dmuon_session dmuon_session;

/* A parameter of this trainer: `data` holds `bytes` bytes, the elements of its region row-major in
 * the spec's dtype. It must outlive the session; updated values are written there. */
typedef struct dmuon_parameter {
  const char* name;
  void* data;
  size_t bytes;
  const int64_t* region_start;  /* elements, one per dimension; NULL: the whole parameter */
  const int64_t* region_extent; /* as region_start */
  size_t dimensions;            /* of region_start and region_extent */
} dmuon_parameter;

/* Set defaults with dmuon_options_init first. Times in seconds. */
typedef struct dmuon_options {
  const char* address; /* gRPC address of the daemon; NULL: this user's Unix socket */
  uint32_t trainer;    /* 0 .. trainers-1 */
  uint32_t trainers;
  dmuon_channel channel;
  dmuon_contribution contribution;
  const char* host_id; /* names the node in the reduction tree; NULL: the host name */
  double step_timeout; /* 0: the daemon's */
  double connect_timeout;
  double start_timeout; /* until all trainers have attached */
  int resume;           /* join a session that already runs, after this trainer was lost */
} dmuon_options;

/* Values of one group in one step; NAN keeps the spec's. See dmuon_group_values_init. */
typedef struct dmuon_group_values {
  const char* group;
  double lr;
  double weight_decay;
  double momentum;
  double beta1;
  double beta2;
} dmuon_group_values;

typedef struct dmuon_step_report {
  uint64_t step;
  dmuon_outcome outcome;
  double grad_norm; /* after grad_scale and reduction, before clipping */
  double clip_factor;
  uint64_t matrices; /* orthogonalised */
  double optimizer_s;
  double busiest_owner_s;
  uint64_t next_step;
  uint32_t absent_parameters;
  char reason[512];    /* empty when committed; cut to fit */
  char parameter[256]; /* the one that was not finite; cut to fit */
} dmuon_step_report;

DMUON_API void dmuon_options_init(dmuon_options* options);
DMUON_API void dmuon_group_values_init(dmuon_group_values* values, const char* group);

/* Opens or joins the daemon's session; returns when all trainers are there. `parameters` are all of
 * the spec's, in any order. *session is NULL after an error. */
DMUON_API dmuon_status dmuon_open(const char* spec_json, const dmuon_parameter* parameters,
                                  size_t count, const dmuon_options* options,
                                  dmuon_session** session);

/* Starts the next step; `step` may be NULL. All trainers must give equal values. Gradients are
 * divided by `grad_scale`. */
DMUON_API dmuon_status dmuon_begin_step(dmuon_session* session, const dmuon_group_values* groups,
                                        size_t group_count, double grad_scale, uint64_t* step);

/* Hands over a gradient, `bytes` as in the parameter; it is copied. A push that is not final is
 * replaced by the next one of the same parameter and starts no work. */
DMUON_API dmuon_status dmuon_push(dmuon_session* session, const char* name, const void* gradient,
                                  size_t bytes, int final);

/* The parameter has no gradient in this step: no update, no decay. */
DMUON_API dmuon_status dmuon_absent(dmuon_session* session, const char* name);

/* Ends the step and waits for it; `report` may be NULL. DMUON_OK: committed, and the parameters
 * hold the new values, or skipped. DMUON_ABORTED with outcome DMUON_STEP_ABORTED: begin it again.
 */
DMUON_API dmuon_status dmuon_step(dmuon_session* session, dmuon_step_report* report);

/* Leaves the session and frees it, also after an error. NULL is allowed. */
DMUON_API dmuon_status dmuon_close(dmuon_session* session);

/* Frees the session without a goodbye: the daemon reports that the trainer died. NULL is allowed.
 */
DMUON_API void dmuon_abandon(dmuon_session* session);

/* Every rank of an MPI job with dmuond in it takes part in a handshake: by opening a session on
 * channel mpi, or with this call. */
DMUON_API dmuon_status dmuon_join_mpi_job(double timeout);

/* The last error of this thread, one line; valid until its next call. Never NULL. */
DMUON_API const char* dmuon_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* DMUON_CLIENT_H_ */
