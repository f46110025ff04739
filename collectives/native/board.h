// Ranks of one host: meetings over shared memory, and collectives that never leave it.
//
// A meeting: each rank writes what it has to tell, raises its counter, rings the bell, and waits until all counters are
// there. A rank that waits spins for moments if every rank has a core and somebody can do nothing else meanwhile; then
// it sleeps in a futex, and is woken by the next arrival: nothing polls, and the rank's computation keeps its core.
// Rows are double: whoever writes the next but one has met everybody in between, so all have read the last. Stages are
// triple: a rank comes to the next meeting, its next piece staged, before it takes the present one, so that it seldom
// waits; whoever comes to a meeting has taken all but the last piece.

static i64 *row_of(Engine *e, int rank, u64 meeting) {
  u8 *rows = (u8 *)(e->board->seats + e->world);
  return (i64 *)rows + ((i64)rank * 2 + (meeting & 1)) * ROW;
}

static const i64 STAGES = 3;

static u8 *stage_of(Engine *e, int rank, u64 meeting) {
  u8 *stages = (u8 *)(e->board->seats + e->world) + (i64)e->world * 2 * ROW * 8;
  stages = (u8 *)(((uintptr_t)stages + 4095) & ~(uintptr_t)4095);
  return stages + ((i64)rank * STAGES + meeting % STAGES) * e->stage_nbytes;
}

EXPORT i64 dc_board_nbytes(i64 world, i64 stage_nbytes) {
  return sizeof(Board) + world * sizeof(Seat) + world * 2 * ROW * 8 + 4096 + world * STAGES * stage_nbytes;
}

static void ring(Board *board) {
  __atomic_add_fetch(&board->bell, 1, __ATOMIC_SEQ_CST);
  if (load(&board->sleepers)) futex_wake(&board->bell, true);
}

// This rank has come to its next meeting; what it wrote before is seen by whoever sees that.
static void arrive(Engine *e) {
  e->meetings++;
  store(&e->board->seats[e->rank].meetings, e->meetings);
  ring(e->board);
}

static bool is_missing(Engine *e, int rank) { return load(&e->board->seats[rank].meetings) < e->meetings; }

static int first_missing(Engine *e) {
  for (int r = 0; r < e->world; r++)
    if (is_missing(e, r)) return r;
  return -1;
}

static Error fail(Engine *e, Error error, i64 a, i64 b) {
  e->error = error, e->detail[0] = a, e->detail[1] = b;
  return error;
}

// Whether a rank that is missing will never come.
static Error check_peers(Engine *e) {
  for (int r = 0; r < e->world; r++) {
    if (r == e->rank || !is_missing(e, r)) continue;
    if (u32 why = load(&e->board->seats[r].state)) return fail(e, PEER_FAILED, r, why);
    struct pollfd gone = {e->peers[r].pidfd, POLLIN, 0};
    if (e->peers[r].pidfd >= 0 && poll(&gone, 1, 0) > 0 && is_missing(e, r)) return fail(e, PEER_DIED, r, 0);
  }
  return FINE;
}

// Whether a rank that came here has given up, as this one was not here in time: then its call fails, too.
static bool came_too_late(Engine *e) {
  for (int r = 0; r < e->world; r++)
    if (r != e->rank && load(&e->board->seats[r].state) == LATE) return fail(e, PEER_FAILED, r, LATE), true;
  return false;
}

static const i64 SPIN_NS = 30 * US, BRIEF_SPIN_NS = 3 * US, YIELD_NS = 60 * US, LOOK_NS = 50 * MS;

// Wait until all ranks are at this rank's meeting. Returns false once `until_ns` is past, or if the engine failed.
static bool meet(Engine *e, Task *t, i64 until_ns) {
  if (first_missing(e) < 0) return true;
  const i64 began = now_ns();
  i64 spin = e->may_spin ? (load(&t->awaited) ? SPIN_NS : BRIEF_SPIN_NS) : 0;
  while (spin) {
    for (int i = 0; i < 64; i++) relax();
    if (first_missing(e) < 0) return true;
    i64 waited = now_ns() - began;
    if (waited > spin + YIELD_NS || (waited > spin && spin == BRIEF_SPIN_NS)) break;
    if (waited > spin) sched_yield();
  }
  Board *board = e->board;
  i64 looked = now_ns();
  __atomic_add_fetch(&board->sleepers, 1, __ATOMIC_SEQ_CST);
  while (true) {
    u32 seen = load(&board->bell);
    if (first_missing(e) < 0 || load(&e->error) != FINE) break;
    futex_wait(&board->bell, seen, LOOK_NS, true);
    i64 now = now_ns();
    if (now > until_ns) break;
    if (now - looked > LOOK_NS) {
      looked = now;
      if (check_peers(e) != FINE) break;
    }
  }
  __atomic_sub_fetch(&board->sleepers, 1, __ATOMIC_SEQ_CST);
  return e->error == FINE && first_missing(e) < 0;
}

// In the middle of a collective: all ranks are there, and must come.
static bool meet_all(Engine *e, Task *t) {
  if (meet(e, t, now_ns() + e->timeout_ns)) return true;
  if (e->error == FINE) fail(e, STUCK, 0, 0);
  return false;
}

static bool meet_again(Engine *e, Task *t) {
  arrive(e);
  return meet_all(e, t);
}

// -- peers' memory

// Where rank `rank`'s buffer lies, as its row tells; null if it cannot be reached.
static u8 *reach(Engine *e, int rank, const i64 *row) {
  Peer *peer = &e->peers[rank];
  for (int i = 0; i < peer->mapped_count; i++)
    if (peer->mapped[i].serial == row[SERIAL]) return peer->mapped[i].address + row[OFFSET];
  char path[64];
  const char *parts = "/proc/";
  int n = 0, digits[2] = {peer->process, (int)row[DESCRIPTOR]};
  for (int part = 0; part < 2; part++) {
    for (const char *c = part ? "/fd/" : parts; *c; c++) path[n++] = *c;
    char text[12];
    int length = 0;
    do text[length++] = (char)('0' + digits[part] % 10); while (digits[part] /= 10);
    while (length) path[n++] = text[--length];
  }
  path[n] = 0;
  int descriptor = open(path, O_RDWR | O_CLOEXEC);
  void *address = MAP_FAILED;
  if (descriptor >= 0) {
    address = mmap(0, row[NBYTES], PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
  }
  Mapping *grown = (Mapping *)realloc(peer->mapped, (peer->mapped_count + 1) * sizeof(Mapping));
  if (address == MAP_FAILED || !grown) {
    fail(e, OUT_OF_REACH, rank, errno);
    return 0;
  }
  peer->mapped = grown;
  peer->mapped[peer->mapped_count++] = Mapping{row[SERIAL], (u8 *)address, row[NBYTES]};
  return (u8 *)address + row[OFFSET];
}

// -- collectives

static const i64 SMALL_NBYTES = 16 << 10;  // up to here a copy through the stages is quicker than two more meetings

// Every rank's buffer lies in shared memory: rank r reduces part r of all of them into its own; then all copy.
static bool reduce_in_place(Engine *e, Task *t, u8 **buffers) {
  const i64 *call = t->record;
  const int dtype = (int)call[DTYPE], size = ITEMSIZE[dtype], world = e->world;
  const i64 n = call[COUNT];
  const u8 *parts[world];
  i64 from = n * e->rank / world, to = n * (e->rank + 1) / world;
  for (int r = 0; r < world; r++) parts[r] = buffers[r] + from * size;
  reduce_pieces(buffers[e->rank] + from * size, parts, world, to - from, dtype, (int)call[OP]);
  if (!meet_again(e, t)) return false;
  for (int step = 1; step < world; step++) {
    int other = (e->rank + step) % world;
    i64 start = n * other / world, stop = n * (other + 1) / world;
    memcpy(buffers[e->rank] + start * size, buffers[other] + start * size, (stop - start) * size);
  }
  return meet_again(e, t);
}

static bool all_in_place(Engine *e, Task *t, u8 **buffers) {
  for (int r = 0; r < e->world; r++)
    if (e->rows[r * ROW + SERIAL] < 0) return false;
  for (int r = 0; r < e->world; r++)
    buffers[r] = r == e->rank ? (u8 *)t->record[TARGET] : reach(e, r, e->rows + r * ROW);
  return e->error == FINE;
}

static bool sends_parts(i64 kind) { return kind == REDUCE_SCATTER || kind == ALL_TO_ALL || kind == SCATTER; }

// How many elements of each piece fit the stage.
static i64 staged_elements(Engine *e, const i64 *call) {
  i64 size = call[WIRE] ? 2 : ITEMSIZE[call[DTYPE]];
  i64 room = e->stage_nbytes / size / (sends_parts(call[KIND]) ? e->world : 1);
  return room > 32 ? room & ~(i64)31 : room;
}

// Put elements [from, from + n) of what the others need into this rank's stage.
static void stage(Engine *e, Task *t, u8 *stage, i64 from, i64 n) {
  const i64 *call = t->record;
  const i64 kind = call[KIND], size = ITEMSIZE[call[DTYPE]], count = call[COUNT];
  const u8 *source = (const u8 *)call[SOURCE];
  if ((kind == BROADCAST || kind == SCATTER) && call[ROOT] != e->rank) return;
  if (call[WIRE]) {
    int wire = call[WIRE] == 1 ? BF16 : F16;
    to_wire((u16 *)stage, source + from * size, n, (int)call[DTYPE], wire);
  } else if (!sends_parts(kind)) {
    memcpy(stage, source + from * size, n * size);
  } else {
    for (int r = 0; r < e->world; r++) memcpy(stage + r * n * size, source + (r * count + from) * size, n * size);
  }
}

// Take this rank's share from all stages.
static void take(Engine *e, Task *t, u64 meeting, i64 from, i64 n) {
  const i64 *call = t->record;
  const i64 kind = call[KIND], size = ITEMSIZE[call[DTYPE]], count = call[COUNT], root = call[ROOT];
  const i64 skip = sends_parts(kind) ? e->rank * n * size : 0;
  u8 *target = (u8 *)call[TARGET];
  if ((kind == REDUCE || kind == GATHER) && root != e->rank) return;
  if (kind == BROADCAST || kind == SCATTER) {
    if (kind == BROADCAST && root == e->rank) return;
    memcpy(target + from * size, stage_of(e, (int)root, meeting) + skip, n * size);
  } else if (kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER) {
    const u8 *pieces[e->world];
    for (int r = 0; r < e->world; r++) pieces[r] = stage_of(e, r, meeting) + skip;
    if (kind == ALL_REDUCE && !call[WIRE]) pieces[e->rank] = target + from * size;  // where it still is
    if (call[WIRE]) {
      u16 block[BLOCK_NBYTES / 2];
      int wire = call[WIRE] == 1 ? BF16 : F16;
      for (i64 start = 0; start < n; start += BLOCK_NBYTES / 2) {
        i64 m = n - start < BLOCK_NBYTES / 2 ? n - start : BLOCK_NBYTES / 2;
        const u8 *here[e->world];
        for (int r = 0; r < e->world; r++) here[r] = pieces[r] + start * 2;
        reduce_pieces(block, here, e->world, m, wire, (int)call[OP]);
        from_wire(target + (from + start) * size, block, m, (int)call[DTYPE], wire);
      }
    } else {
      reduce_pieces(target + from * size, pieces, e->world, n, (int)call[DTYPE], (int)call[OP]);
    }
  } else {  // all_gather, gather, all_to_all
    for (int r = 0; r < e->world; r++)
      memcpy(target + (r * count + from) * size, stage_of(e, r, meeting) + skip, n * size);
  }
}

// Whether this rank stages its first piece before the roll call, which then is the meeting for it.
static bool stages_early(const i64 *row) {
  return row[SERIAL] < 0 || row[KIND] != ALL_REDUCE || row[WIRE] || row[COUNT] * ITEMSIZE[row[DTYPE]] <= SMALL_NBYTES;
}

// A collective over the stages. Where some rank expected to reduce in place, all stage their first piece again.
static bool run_staged(Engine *e, Task *t) {
  const i64 n = t->record[COUNT], step = staged_elements(e, t->record);
  bool is_staged = true;
  for (int r = 0; r < e->world; r++) is_staged &= stages_early(e->rows + r * ROW);
  if (n && !is_staged) {
    stage(e, t, stage_of(e, e->rank, e->meetings + 1), 0, n < step ? n : step);
    if (!meet_again(e, t)) return false;
  }
  for (i64 from = 0, next = step; from < n; from = next, next += step) {
    const u64 meeting = e->meetings;
    const bool is_last = next >= n;
    if (!is_last) {
      stage(e, t, stage_of(e, e->rank, meeting + 1), next, n - next < step ? n - next : step);
      arrive(e);
    }
    take(e, t, meeting, from, is_last ? n - from : step);
    if (!is_last && !meet_all(e, t)) return false;
  }
  return true;
}
