// Ranks of several hosts: the roll call, and collectives as programs of messages between two ranks.
//
// A program is a list of steps of STEP_WORDS int64, made in Python (programs.py, which also has an interpreter for it):
// post a send or a receive, wait for requests, reduce, copy, convert. Messages of one pair of ranks match in the order in
// which they are posted. MPI makes progress only when it is called: a wait looks, and sleeps between looks, shortly if
// somebody waits for the result, up to 0.5 ms if this rank computes, for each look takes the core from the computation.

enum { STEP_SEND, STEP_RECEIVE, STEP_WAIT, STEP_REDUCE, STEP_COPY, STEP_TO_WIRE, STEP_FROM_WIRE };
enum { ROLL_TAG = 7001, DATA_TAG = 7003 };

static bool check(Engine *e, int code) {
  if (code) fail(e, MPI_FAILED, code, 0);
  return !code;
}

static bool post(Engine *e, Slot *slot, bool is_send, void *data, i64 nbytes, i64 peer, int tag) {
  Mpi *m = &e->mpi;
  slot->request = 0, slot->active = 1;
  return check(e, is_send ? m->isend(data, (int)nbytes, m->bytes, (int)peer, tag, m->comm, &slot->request)
                          : m->irecv(data, (int)nbytes, m->bytes, (int)peer, tag, m->comm, &slot->request));
}

// Look at the requests [from, to); true when all are done.
static bool are_done(Engine *e, Slot *slots, i64 from, i64 to) {
  bool all = true;
  for (i64 i = from; i < to; i++) {
    if (!slots[i].active) continue;
    i64 status[8];
    int done = 0;
    if (!check(e, e->mpi.test(&slots[i].request, &done, status))) return false;
    if (done) slots[i].active = 0;
    all &= done;
  }
  return all;
}

// Between two looks. `began`: when this wait did.
static void pause_between_looks(Engine *e, Task *t, i64 began, i64 *ns, i64 longest) {
  bool awaited = load(&t->awaited);
  if (awaited && e->may_spin && now_ns() - began < 100 * US) {
    sched_yield();
    return;
  }
  if (awaited && longest > 100 * US) longest = 100 * US;
  if (*ns > longest) *ns = longest;
  sleep_ns(*ns);
  *ns += *ns / 2;
}

static void announce_next(Engine *e, Task *t);

static bool wait_for(Engine *e, Task *t, i64 from, i64 to) {
  const i64 began = now_ns(), is_large = t->record[PAYLOAD_NBYTES] >= 64 << 10;
  i64 ns = is_large ? 200 * US : 20 * US, longest = is_large ? 500 * US : 200 * US;
  while (!are_done(e, e->slots, from, to)) {
    if (e->error != FINE) return false;
    if (now_ns() - began > e->timeout_ns) {
      fail(e, STUCK, 0, 0);
      return false;
    }
    announce_next(e, t);
    pause_between_looks(e, t, began, &ns, longest);
  }
  return true;
}

// -- the roll call by messages

static void announce_by_messages(Engine *e, Task *t) {
  i64 *row = t->record, parity = (row[SEQUENCE] = ++e->sequence) & 1;
  i64 *rows = e->all_rows[parity], *mine = e->mine[parity];
  Slot *roll = e->rolls[parity];
  row[ANNOUNCED] = 1;
  memcpy(mine, row, ROW * 8);
  memcpy(rows + e->rank * ROW, row, ROW * 8);
  for (int r = 0, world = e->world; r < world; r++) {
    if (r == e->rank) continue;
    if (!post(e, roll + r, false, rows + r * ROW, ROW * 8, r, ROLL_TAG)) return;
    if (!post(e, roll + world + r, true, mine, ROW * 8, r, ROLL_TAG)) return;
  }
}

// While the data of `t` move, the ranks meet for the next task already, if it is sure to run.
static void announce_next(Engine *e, Task *t) {
  Task *next = load(&t->next);
  if (!next || next->record[ANNOUNCED] || load(&next->held) || load(&next->cancelled)) return;
  Task *gate = (Task *)next->record[GATE];
  if (!gate || (load(&gate->state) == DONE && !gate->error && gate->passed)) announce_by_messages(e, next);
}

static bool meet_by_messages(Engine *e, Task *t, i64 until_ns) {
  const i64 began = now_ns();
  i64 ns = 20 * US;
  while (!are_done(e, e->roll, 0, 2 * e->world)) {
    i64 now = now_ns(), longest = (now - e->gathering_since_ns) / 100;
    if (e->error != FINE || now > until_ns) return false;
    longest = longest < 500 * US ? 500 * US : longest > 5 * MS ? 5 * MS : longest;
    pause_between_looks(e, t, began, &ns, longest);
  }
  return true;
}

// -- programs

static u8 *place(Engine *e, Task *t, i64 region, i64 offset) {
  u8 *bases[] = {(u8 *)t->record[SOURCE], (u8 *)t->record[TARGET], e->scratch};
  return bases[region] + offset;
}

static bool grow(Engine *e, const i64 *record) {
  if (record[SCRATCH_NBYTES] > e->scratch_nbytes) {
    free(e->scratch);
    e->scratch_nbytes = record[SCRATCH_NBYTES];
    if (posix_memalign((void **)&e->scratch, 64, e->scratch_nbytes)) e->scratch = 0, e->scratch_nbytes = 0;
  }
  if (record[SLOTS] > e->slot_count) {
    free(e->slots);
    e->slot_count = record[SLOTS];
    e->slots = (Slot *)calloc(e->slot_count, sizeof(Slot));
  }
  bool is_fine = (e->scratch || !record[SCRATCH_NBYTES]) && (e->slots || !record[SLOTS]);
  if (!is_fine) fail(e, NO_MEMORY, record[SCRATCH_NBYTES], 0);
  return is_fine;
}

static void run_reduce(Engine *e, Task *t, const i64 *step) {
  const u8 *pieces[e->world];
  for (int r = 0; r < e->world; r++)
    pieces[r] = r == e->rank ? place(e, t, step[4], step[5]) : e->scratch + step[1] + r * step[7];
  const i64 *call = t->record;
  int dtype = call[WIRE] ? (call[WIRE] == 1 ? BF16 : F16) : (int)call[DTYPE];
  reduce_pieces(place(e, t, step[2], step[3]), pieces, e->world, step[6], dtype, (int)call[OP]);
}

// Words of a step: what, peer, region and offset a, region and offset b, n (bytes or elements), slot.
static bool run_step(Engine *e, Task *t, const i64 *step) {
  const int dtype = (int)t->record[DTYPE], wire = t->record[WIRE] == 1 ? BF16 : F16;
  u8 *a = place(e, t, step[2], step[3]), *b = place(e, t, step[4], step[5]);
  switch (step[0]) {
    case STEP_SEND: case STEP_RECEIVE: return post(e, e->slots + step[7], step[0] == STEP_SEND, a, step[6], step[1], DATA_TAG);
    case STEP_WAIT: return wait_for(e, t, step[7], step[7] + step[6]);
    case STEP_REDUCE: run_reduce(e, t, step); break;
    case STEP_COPY: memmove(a, b, step[6]); break;
    case STEP_TO_WIRE: to_wire((u16 *)a, b, step[6], dtype, wire); break;
    case STEP_FROM_WIRE: from_wire(a, (u16 *)b, step[6], dtype, wire); break;
  }
  return true;
}

static bool run_program(Engine *e, Task *t) {
  if (!grow(e, t->record)) return false;
  const i64 *steps = (const i64 *)t->record[STEPS];
  for (i64 i = 0; i < t->record[STEP_COUNT]; i++)
    if (!run_step(e, t, steps + i * STEP_WORDS)) return false;
  return true;
}
