// The engine's data: launch record, task, board, engine.
//
// A launch record is RECORD int64 words, packed by Python (records.py): the roll call's row, then what this rank adds.
// A task is made from it, queued, and lives until the engine and Python have both let go of it.

enum { ROW = 32, RECORD = 48 };  // words
// a row: rollcall.py has the same layout
enum { SEQUENCE, KIND, OP, DTYPE, COUNT, ROOT, WIRE, PLAN, STEP, BUCKET, NEEDED, SERIAL, DESCRIPTOR, NBYTES, OFFSET, WORDS };
enum { COMPARED_FROM = KIND, COMPARED_TO = NEEDED };
// the rest of a record
enum { SOURCE = ROW, TARGET, GATE, AGREE, FLAGS, STEPS, STEP_COUNT, SLOTS, SCRATCH_NBYTES, PAYLOAD_NBYTES, TABLE, ANNOUNCED };
enum { HELD = 1, QUIET = 2 };  // QUIET: who launches it also waits for it, at once
enum { STEP_WORDS = 8 };

enum Kind {  // order of call.KINDS
  ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, BARRIER, ALL_GATHER_OBJECT, BROADCAST_OBJECT, CLOSE, REDUCE, GATHER,
  SCATTER, ALL_TO_ALL, ALL_TO_ALL_UNEVEN, CONNECT, GATE_KIND
};

enum State { QUEUED, GATHERING, MOVING, DONE };

enum Error : int32_t {  // native_engine.py turns each into an exception
  FINE, MISMATCH, LATE, STUCK, MPI_FAILED, PEER_DIED, PEER_FAILED, OUT_OF_REACH, CLOSED_EARLY, NO_MEMORY, SPLITS
};

struct Task {
  u32 state, held, cancelled, skipped, awaited, refs;  // Python reads the first four, and the times, in place;
                                                       // awaited: by how many threads
  int32_t error;
  u32 passed;  // of a gate
  i64 launched_ns, released_ns, started_ns, ended_ns;
  Task *next;
  i64 record[RECORD];
  i64 rows[];  // of a gate: all ranks' rows
};

// -- memory that all ranks of one host map

struct Seat {  // one a rank, in cache lines of its own
  u64 meetings __attribute__((aligned(64)));
  u32 state __attribute__((aligned(64)));  // 0, or why this rank has given up
};

struct Board {
  u8 token[16];
  u32 bell __attribute__((aligned(64)));      // goes up at each arrival; futex
  u32 sleepers __attribute__((aligned(64)));  // ranks that may sit in the futex
  Seat seats[];
};

struct Mapping { i64 serial; u8 *address; i64 nbytes; };  // of one peer's segment
struct Peer { int process, pidfd; Mapping *mapped; int mapped_count; };

struct Mpi {  // functions of the MPI that mpi4py loaded; handles as integers or pointers, whichever it has
  int (*isend)(const void *, int, intptr_t, int, int, intptr_t, void *);
  int (*irecv)(void *, int, intptr_t, int, int, intptr_t, void *);
  int (*test)(void *, int *, void *);
  intptr_t comm, bytes;
};

struct Slot { u64 request; u32 active; };  // one MPI request

struct Engine {
  Error error;     // Python reads it in place
  i64 detail[4];
  int rank, world;
  i64 timeout_ns;
  bool may_spin;   // a core for each rank
  Board *board;    // null: ranks of several hosts, or of one that shares no memory
  i64 stage_nbytes;
  u64 meetings;
  Peer *peers;
  Mpi mpi;
  Slot *roll;      // of the present roll call: world receives, then world sends
  Slot *rolls[2];  // that one, and the next, by the parity of its number
  Slot *slots;
  i64 slot_count;
  u8 *scratch;
  i64 scratch_nbytes;
  i64 *rows;       // world * ROW: of the present roll call
  i64 *all_rows[2];
  i64 mine[2][ROW];
  i64 sequence;
  i64 gathering_since_ns;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Task *head, *tail;
  bool busy;       // some thread drives the head
  bool stopping;
  pthread_t thread;
};
