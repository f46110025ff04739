// The queue, the thread that serves it, and what Python and compiled artefacts call.
//
// Tasks run strictly in launch order. The head is driven by the engine's thread, or by a thread that waits for it: a
// blocking call on an idle engine needs no other thread. Only one drives at a time (`busy`). A task is driven in two
// parts: the roll call, which can be left and taken up again by another thread, and the data, which cannot.
// After an error every later task ends with it: the ranks no longer agree which call comes next.

static const i64 DRIVEN_NBYTES = 64 << 20;  // a thread that waits moves no more than this itself
static const u32 HURRIED = 1u << 31;         // in `awaited`: a later task is waited for

static void unref(Task *t) {
  if (__atomic_sub_fetch(&t->refs, 1, __ATOMIC_SEQ_CST) == 0) {
    if (t->record[GATE]) unref((Task *)t->record[GATE]);
    free(t);
  }
}

// -- one task, driven by whoever holds `busy`

static void finish(Task *t, Error error, bool skipped) {
  t->ended_ns = now_ns();
  if (!t->started_ns) t->started_ns = t->ended_ns;
  t->error = error, t->skipped = skipped;
  store(&t->state, (u32)DONE);
  if (load(&t->awaited)) futex_wake(&t->state, false);
}

static bool is_void(Task *t) {
  Task *gate = (Task *)t->record[GATE];
  return load(&t->cancelled) || (gate && !gate->error && !gate->passed);
}

static void announce(Engine *e, Task *t) {
  i64 *row = t->record;
  e->gathering_since_ns = now_ns();
  store(&t->state, (u32)GATHERING);
  if (!e->board) {
    if (!row[ANNOUNCED]) announce_by_messages(e, t);
    e->rows = e->all_rows[row[SEQUENCE] & 1], e->roll = e->rolls[row[SEQUENCE] & 1];
    return;
  }
  row[SEQUENCE] = ++e->sequence;
  memcpy(row_of(e, e->rank, e->meetings + 1), row, ROW * 8);
  if (row[COUNT] && row[KIND] != GATE_KIND && row[KIND] != CLOSE && stages_early(row)) {
    i64 fits = staged_elements(e, row);
    stage(e, t, stage_of(e, e->rank, e->meetings + 1), 0, row[COUNT] < fits ? row[COUNT] : fits);
  }
  arrive(e);
}

// Whether all ranks are here. False: not by `until_ns`, or the engine failed.
static bool gather(Engine *e, Task *t, i64 until_ns) {
  const i64 limit = e->gathering_since_ns + e->timeout_ns;
  const i64 until = until_ns < limit ? until_ns : limit;
  if (!(e->board ? meet(e, t, until) : meet_by_messages(e, t, until))) {
    if (e->error == FINE && now_ns() > e->gathering_since_ns + e->timeout_ns) fail(e, LATE, 0, 0);
    return false;
  }
  if (e->board)
    for (int r = 0; r < e->world; r++) memcpy(e->rows + r * ROW, row_of(e, r, e->meetings), ROW * 8);
  for (int r = 0; r < e->world; r++)
    if (memcmp(e->rows + r * ROW + COMPARED_FROM, t->record + COMPARED_FROM, (COMPARED_TO - COMPARED_FROM) * 8)) {
      fail(e, MISMATCH, r, 0);
      return false;
    }
  return !(e->board && came_too_late(e));
}

static void pass_gate(Engine *e, Task *t) {
  memcpy(t->rows, e->rows, e->world * ROW * 8);
  t->passed = 1;
  for (int r = 0; r < e->world; r++)
    if (memcmp(e->rows + r * ROW + WORDS, t->record + WORDS, t->record[AGREE] * 8)) t->passed = 0;
}

static bool is_needed(Engine *e) {
  for (int r = 0; r < e->world; r++)
    if (e->rows[r * ROW + NEEDED]) return true;
  return false;
}

// An uneven all-to-all: what each rank sends must be what the other expects. table: i64[world, 2 world], by rank.
static bool do_splits_fit(Engine *e, Task *t) {
  const i64 *table = (const i64 *)t->record[TABLE], world = e->world;
  for (i64 from = 0; from < world; from++)
    for (i64 to = 0; to < world; to++)
      if (table[from * 2 * world + to] != table[to * 2 * world + world + from]) return fail(e, SPLITS, from, to), false;
  return true;
}

static bool move(Engine *e, Task *t) {
  const i64 kind = t->record[KIND];
  if (kind == ALL_TO_ALL_UNEVEN && !do_splits_fit(e, t)) return false;
  if (kind == GATE_KIND) pass_gate(e, t);
  if (kind == GATE_KIND || kind == BARRIER || kind == CLOSE) return true;
  if (t->record[STEP_COUNT]) return run_program(e, t);
  if (!e->board) return true;
  u8 *buffers[e->world];
  bool may_be_in_place = !stages_early(t->record) && all_in_place(e, t, buffers);
  if (e->error != FINE) return false;
  return may_be_in_place ? reduce_in_place(e, t, buffers) : run_staged(e, t);
}

// Tell the others, who may wait for this rank.
static void give_up(Engine *e, Task *t) {
  if (e->detail[3]) return;
  e->detail[3] = (i64)t;
  if (e->board) {
    store(&e->board->seats[e->rank].state, (u32)e->error);
    ring(e->board);
  }
}

// Drive the head as far as it goes until `until_ns` (of the roll call). True when it is done.
static bool drive(Engine *e, Task *t, i64 until_ns) {
  if (is_void(t)) return finish(t, FINE, true), true;
  if (e->error == FINE && load(&t->state) == QUEUED) announce(e, t);
  if (e->error == FINE && !gather(e, t, until_ns) && e->error == FINE) return false;
  bool skipped = false;
  if (e->error == FINE) {
    t->started_ns = now_ns();
    store(&t->state, (u32)MOVING);
    skipped = !is_needed(e);
    if (!skipped) move(e, t);
  }
  if (e->error != FINE) give_up(e, t);
  return finish(t, e->error, skipped), true;
}

static bool may_start(Engine *e, Task *t) {
  return !load(&t->held) || is_void(t) || e->error != FINE;
}

// With the lock held: drive the head once, without the lock.
static void drive_head(Engine *e, i64 until_ns) {
  Task *t = e->head;
  e->busy = true;
  pthread_mutex_unlock(&e->lock);
  bool done = drive(e, t, until_ns);
  pthread_mutex_lock(&e->lock);
  e->busy = false;
  if (done) {
    e->head = t->next;
    if (!e->head) e->tail = 0;
    unref(t);
  }
}

static bool has_work(Engine *e) { return e->head && !e->busy && may_start(e, e->head); }

static void *serve(void *engine) {
  Engine *e = (Engine *)engine;
  prctl(PR_SET_NAME, "collectives");
  prctl(PR_SET_TIMERSLACK, 1000UL);
  const id_t self = (id_t)syscall(SYS_gettid);
  setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) - 5);  // may be refused: then it has the rank's own
  pthread_mutex_lock(&e->lock);
  while (true) {
    while (!has_work(e) && !(e->stopping && !e->head)) pthread_cond_wait(&e->changed, &e->lock);
    if (!has_work(e)) break;
    drive_head(e, FOREVER);
  }
  pthread_mutex_unlock(&e->lock);
  return 0;
}

// -- what Python calls

EXPORT Engine *dc_open(const i64 *settings, const i64 *processes) {
  Engine *e = (Engine *)calloc(1, sizeof(Engine));
  if (!e) return 0;
  e->rank = (int)settings[0], e->world = (int)settings[1], e->timeout_ns = settings[2], e->may_spin = settings[3];
  e->board = (Board *)settings[4], e->stage_nbytes = settings[5];
  e->mpi.isend = (int (*)(const void *, int, intptr_t, int, int, intptr_t, void *))settings[6];
  e->mpi.irecv = (int (*)(void *, int, intptr_t, int, int, intptr_t, void *))settings[7];
  e->mpi.test = (int (*)(void *, int *, void *))settings[8];
  e->mpi.comm = settings[9], e->mpi.bytes = settings[10];
  e->peers = (Peer *)calloc(e->world, sizeof(Peer));
  for (int parity = 0; parity < 2; parity++) {
    e->rows = e->all_rows[parity] = (i64 *)calloc((i64)e->world * ROW, 8);
    e->roll = e->rolls[parity] = (Slot *)calloc(2 * (i64)e->world, sizeof(Slot));
  }
  for (int r = 0; r < e->world; r++) {
    e->peers[r].process = (int)processes[r];
    e->peers[r].pidfd = e->board && r != e->rank ? (int)syscall(SYS_pidfd_open, (pid_t)processes[r], 0) : -1;
  }
  pthread_mutex_init(&e->lock, 0);
  pthread_cond_init(&e->changed, 0);
  sigset_t all, before;  // signals are for Python's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int refused = pthread_create(&e->thread, 0, serve, e);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  return refused ? free(e), (Engine *)0 : e;
}

// Queue a task. Python holds one reference.
EXPORT Task *dc_launch(Engine *e, const i64 *record) {
  Task *t = (Task *)calloc(1, sizeof(Task) + (record[KIND] == GATE_KIND ? (u64)e->world * ROW * 8 : 0));
  if (!t) return 0;
  memcpy(t->record, record, sizeof t->record);
  t->refs = 2, t->held = record[FLAGS] & HELD, t->launched_ns = now_ns();
  if (Task *gate = (Task *)record[GATE]) __atomic_add_fetch(&gate->refs, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_lock(&e->lock);
  if (e->tail) store(&e->tail->next, t);
  else e->head = t;
  e->tail = t;
  bool wakes = !(record[FLAGS] & (QUIET | HELD)) && has_work(e);
  pthread_mutex_unlock(&e->lock);
  if (wakes) pthread_cond_signal(&e->changed);
  return t;
}

EXPORT void dc_release(Engine *e, Task *t, i64 cancels) {
  pthread_mutex_lock(&e->lock);
  bool was_held = t->held;
  if (was_held) {
    t->released_ns = now_ns();
    store(&t->cancelled, (u32)cancels);
    store(&t->held, 0u);
  }
  bool wakes = was_held && has_work(e);
  pthread_mutex_unlock(&e->lock);
  if (wakes) pthread_cond_signal(&e->changed);
}

// Wait until `t` is done, driving it if nobody does. Returns whether it is; false after `ns`.
EXPORT i64 dc_wait(Engine *e, Task *t, i64 ns) {
  const i64 until = ns == FOREVER ? FOREVER : now_ns() + ns;
  __atomic_add_fetch(&t->awaited, 1, __ATOMIC_SEQ_CST);
  while (load(&t->state) != DONE) {
    if (now_ns() > until) break;
    pthread_mutex_lock(&e->lock);
    bool drives = has_work(e) && t->record[PAYLOAD_NBYTES] <= DRIVEN_NBYTES;
    if (e->head && e->head != t) __atomic_or_fetch(&e->head->awaited, HURRIED, __ATOMIC_SEQ_CST);
    if (drives) {
      drive_head(e, until);
      if (has_work(e) && load(&t->state) == DONE) pthread_cond_signal(&e->changed);
    } else if (has_work(e)) {
      pthread_cond_signal(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    u32 state = load(&t->state);
    if (!drives && state != DONE) futex_wait(&t->state, state, until == FOREVER ? 1000 * MS : until - now_ns(), false);
  }
  if (load(&t->state) == DONE) return 1;
  __atomic_sub_fetch(&t->awaited, 1, __ATOMIC_SEQ_CST);
  pthread_cond_signal(&e->changed);  // nobody may be driving it now
  return 0;
}

EXPORT void dc_drop(Task *t) { unref(t); }

// Ranks that the present roll call or meeting still waits for, into `ranks`; how many.
EXPORT i64 dc_missing(Engine *e, i64 *ranks) {
  i64 n = 0;
  for (int r = 0; r < e->world; r++)
    if (r != e->rank && (e->board ? is_missing(e, r) : e->roll[r].active)) ranks[n++] = r;
  return n;
}

// The present roll call's time limit starts anew.
EXPORT void dc_excuse(Engine *e) { store(&e->gathering_since_ns, now_ns()); }

// Stop waiting: the task under way, and all later ones, fail. is_late: for the time that it took.
EXPORT void dc_abandon(Engine *e, i64 is_late) {
  if (e->error == FINE) fail(e, is_late ? LATE : CLOSED_EARLY, 0, 0);
  if (e->board) ring(e->board);
  pthread_cond_broadcast(&e->changed);
}

// The limit of every wait of the engine itself.
EXPORT void dc_limit(Engine *e, i64 ns) { store(&e->timeout_ns, ns); }

// Why the engine failed (0: it did not), with details; all ranks' rows if they met in different calls.
EXPORT i64 dc_error(Engine *e, i64 *detail, i64 *rows) {
  memcpy(detail, e->detail, sizeof e->detail);
  memcpy(rows, e->rows, (i64)e->world * ROW * 8);
  return e->error;
}

// Finish what is queued and end the thread. Nothing may be held.
EXPORT void dc_join(Engine *e) {
  pthread_mutex_lock(&e->lock);
  e->stopping = true;
  pthread_mutex_unlock(&e->lock);
  pthread_cond_signal(&e->changed);
  pthread_join(e->thread, 0);
}

EXPORT void dc_free(Engine *e) {
  for (int r = 0; r < e->world; r++) {
    for (int i = 0; i < e->peers[r].mapped_count; i++) munmap(e->peers[r].mapped[i].address, e->peers[r].mapped[i].nbytes);
    free(e->peers[r].mapped);
    if (e->peers[r].pidfd >= 0) close(e->peers[r].pidfd);
  }
  free(e->peers);
  if (e->error != FINE) return;  // MPI may still write rows and scratch
  for (int parity = 0; parity < 2; parity++) free(e->rolls[parity]), free(e->all_rows[parity]);
  free(e->scratch), free(e->slots), free(e);
}

// -- what compiled artefacts call: struct dc_events {self, signal, wait}

// Event k stands for the tasks first[k] .. first[k+1], which follow `first`. Made by work_events.py.
struct Events { Engine *engine; i64 count; i64 first[]; };

static Task **tasks_of(Events *events) { return (Task **)(events->first + events->count + 1); }

EXPORT void dc_signal(void *self, i64 k) {
  Events *events = (Events *)self;
  for (i64 i = events->first[k]; i < events->first[k + 1]; i++) dc_release(events->engine, tasks_of(events)[i], 0);
}

// 0: all are done; otherwise why not.
EXPORT int32_t dc_await(void *self, i64 k) {
  Events *events = (Events *)self;
  for (i64 i = events->first[k]; i < events->first[k + 1]; i++) {
    Task *t = tasks_of(events)[i];
    if (load(&t->state) != DONE && !dc_wait(events->engine, t, events->engine->timeout_ns)) return LATE;
    if (t->error) return t->error;
  }
  return 0;
}
