/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The framing inside byte streams: finds the frames or messages in the bytes that a traced thread
 * has just moved through a stream socket. The bytes are read from the program's buffers at the end
 * of its call, and only the headers are read; the state is kept across calls. The table of
 * protocols (protocols.h) recognizes a stream's protocol by its first bytes.
 */
#include "framing.h"
#include "protocols.h"
#include "syscall_numbers.h"

/*
 * Steps per call; more is recorded as a gap. A frame takes one step, a line one for each 32 bytes,
 * a SET of Redis five, so that a thousand of them in one call (5,001) are followed. A step takes
 * about 60 ns, during which no other task has the CPU.
 */
#define MOST_STEPS 6144
#define TRIAL_STEPS 512
/* Calls whose bytes make no sense before a stream is left alone. */
#define MOST_TRIES 8

/* Calls of several threads may be recorded in another order than that of their bytes. */
#define LATE_BYTES (1 << 20)
/* Least distance between the byte numbers of a connection and those of the next one between the
 * same ends. The kernel derives the first number of both from the same addresses and a clock of 64
 * ns, a second apart. */
#define LEAST_APART (8 << 20)
/* Larger gaps cannot be skipped: sequence numbers have 32 bits. */
#define MOST_GAP (1ULL << 31)

#define MSG_TRUNC 0x20

struct framer_key {
    u64 channel;
    u64 side;
};

/* Most streams whose framing is followed; user space sets it to what the machine has room for. */
const volatile u32 most_framers = 8192;

/* Index of a stream's framer, by channel and side (the writer's or the reader's). */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192); /* most_framers, like `framers` */
    __type(key, struct framer_key);
    __type(value, u32);
} framer_places SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 8192);
    __type(key, u32);
    __type(value, struct framer);
} framers SEC(".maps");

/* struct user_msghdr and struct iovec, include/linux/socket.h, include/uapi/linux/uio.h */
struct user_message {
    u64 name[2];
    u64 iovecs;
    u64 iovecs_count;
};

struct user_buffer {
    u64 address;
    u64 bytes;
};

/* struct mmsghdr, include/linux/socket.h: a message, and how many bytes of it were moved */
#define MMSGHDR_BYTES 64
#define MMSGHDR_IOVECS 16
#define MMSGHDR_MOVED 56

__noinline int emit_unit(struct framer *f, u64 bytes, u32 what)
{
    if (!f || f->trial.kind)
        return 0;
    u8 type = what, flags = what >> 8, told = what >> 16, status_known = what >> 24;
    if (f->stream.after_gap)
        told |= UNIT_AFTER_GAP;
    f->stream.after_gap = 0;
    emit (rec_unit, r, f->call.now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = f->call.now_ns,
                                  .tid = f->call.tid,
                                  .kind = REC_UNIT,
                                  .flags = told | f->stream.role};
        r->channel = f->channel;
        r->reverse = f->call.reverse;
        r->offset = f->message.unit;
        r->bytes = bytes;
        r->id = f->message.id;
        r->protocol = f->stream.protocol;
        r->kind = type;
        r->flags = flags;
        r->pad = 0;
        r->object_type = f->call.object_type;
        r->status_known = status_known;
        r->numbers[0] = f->message.numbers[0];
        r->numbers[1] = f->message.numbers[1];
        r->numbers[2] = f->message.numbers[2];
    }
    return 0;
}

__noinline int emit_gap(u64 channel, u64 reverse, u64 offset, u64 what, u64 now_ns)
{
    emit (rec_gap, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns,
                                  .tid = (u32)bpf_get_current_pid_tgid(),
                                  .kind = REC_GAP,
                                  .flags = (u8)(what >> 32)};
        r->channel = channel;
        r->reverse = reverse;
        r->offset = offset;
        r->object_type = what;
        r->protocol = what >> 16;
        r->why = what >> 24;
        r->pad = 0;
    }
    return 0;
}

__noinline int tell_line(struct framer *f)
{
    if (!f)
        return 0;
    struct rec_line *r = &f->line;
    r->hdr = (struct rec_hdr){.ts_ns = f->call.now_ns, .tid = f->call.tid, .kind = REC_LINE};
    r->channel = f->channel;
    r->offset = f->message.unit;
    r->line_bytes = f->message.line_bytes;
    r->object_type = f->call.object_type;
    r->protocol = f->stream.protocol;
    r->pad = 0;
    if (f->message.line_bytes <= PIECE_BYTES)
        output_record(r, __builtin_offsetof(struct rec_line, line) + f->message.line_bytes,
                      f->call.now_ns);
    return 0;
}

static __always_inline bool begin_at_message(struct framer *f)
{
    f->at.skip = 0;
    f->trial.frames = f->trial.open_block = f->trial.ended_stream = f->trial.headers_stream =
        f->trial.evidence = 0;
    return begin_message(f);
}

/* Finds the program's buffers with the bytes that its call moved; false: the call has none. */
static __always_inline bool find_buffers(struct framer *f, const struct task_state *state,
                                         struct pt_regs *regs)
{
    struct user_message message;
    f->at.left = state->socket.bytes;
    f->at.next = state->socket.end - state->socket.bytes;
    f->at.buffer = f->at.buffer_left = 0;
    f->at.iovecs = f->at.iovecs_left = 0;
    f->at.messages_left = 0;
    f->at.message_left = ~0U;
    switch (state->nr) {
    case NR_recvfrom:
        if (CALL_ARG_4(regs) & MSG_TRUNC)
            return false;
        /* fall through */
    case NR_read:
    case NR_write:
    case NR_sendto:
        f->at.buffer = CALL_ARG_2(regs);
        f->at.buffer_left = CALL_ARG_3(regs);
        return true;
    case NR_readv:
    case NR_writev:
    case NR_preadv2:
    case NR_pwritev2:
        f->at.iovecs = CALL_ARG_2(regs);
        f->at.iovecs_left = CALL_ARG_3(regs);
        return true;
    case NR_recvmsg:
        if (CALL_ARG_3(regs) & MSG_TRUNC)
            return false;
        /* fall through */
    case NR_sendmsg:
        if (bpf_probe_read_user(&message, sizeof(message), (void *)CALL_ARG_2(regs)) != 0)
            return false;
        f->at.iovecs = message.iovecs;
        f->at.iovecs_left = message.iovecs_count;
        return true;
    case NR_recvmmsg:
        if (CALL_ARG_4(regs) & MSG_TRUNC)
            return false;
        /* fall through */
    case NR_sendmmsg:
        f->at.messages = CALL_ARG_2(regs);
        f->at.messages_left = CALL_ARG_3(regs);
        f->at.message_left = 0;
        return true;
    }
    return false;
}

static __always_inline void advance_cursor(struct framer *f, u64 bytes)
{
    f->at.buffer += bytes;
    f->at.buffer_left -= bytes;
    f->at.left -= bytes;
    f->at.next += bytes;
}

static __always_inline bool next_message(struct framer *f)
{
    struct user_buffer iovecs; /* the array of buffers that a message has */
    if (!f->at.messages_left ||
        bpf_probe_read_user(&iovecs, sizeof(iovecs), (void *)f->at.messages + MMSGHDR_IOVECS) !=
            0 ||
        bpf_probe_read_user(&f->at.message_left, sizeof(f->at.message_left),
                            (void *)f->at.messages + MMSGHDR_MOVED) != 0)
        return false;
    f->at.messages += MMSGHDR_BYTES;
    f->at.messages_left--;
    f->at.iovecs = iovecs.address;
    f->at.iovecs_left = iovecs.bytes;
    return true;
}

static __always_inline bool next_buffer(struct framer *f)
{
    struct user_buffer buffer;
    if (!f->at.message_left)
        return next_message(f);
    if (!f->at.iovecs_left ||
        bpf_probe_read_user(&buffer, sizeof(buffer), (void *)f->at.iovecs) != 0)
        return false;
    f->at.iovecs += sizeof(buffer);
    f->at.iovecs_left--;
    f->at.buffer = buffer.address;
    f->at.buffer_left = buffer.bytes < f->at.message_left ? buffer.bytes : f->at.message_left;
    if (f->at.message_left != ~0U)
        f->at.message_left -= f->at.buffer_left;
    return true;
}

static __always_inline void skip_bytes(struct framer *f, u64 bytes)
{
    if (bytes > f->at.skip)
        bytes = f->at.skip;
    bool block = f->stream.protocol == PROTOCOL_HTTP2 && f->message.state == HTTP2_BLOCK;
    if (block && f->message.pieces_left) {
        if (bytes > PIECE_BYTES)
            bytes = PIECE_BYTES;
        if (bytes > f->message.pieces_left)
            bytes = f->message.pieces_left;
        f->message.pieces_left -= bytes;
        if (!f->trial.kind)
            http2_piece(f, bytes);
    }
    f->at.skip -= bytes;
    if (block && !f->at.skip)
        f->message.state = HTTP2_FRAME;
    advance_cursor(f, bytes);
}

static __always_inline bool read_head(struct framer *f, u64 bytes)
{
    u32 have = f->at.have & (HEAD_BYTES - 1), want = f->at.need - have;
    if (want > HEAD_BYTES)
        return false;
    if (bytes < want)
        want = bytes;
    barrier_var(want); /* else older verifiers see the check of a copy */
    if (want > HEAD_BYTES ||
        bpf_probe_read_user(f->at.head + have, want, (void *)f->at.buffer) != 0)
        return false;
    advance_cursor(f, want);
    f->at.have = have + want;
    return f->at.have < f->at.need || head_is_there(f);
}

static __always_inline bool read_line(struct framer *f, u64 bytes)
{
    u32 have = f->at.have, want = bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
    if (have > HEAD_BYTES)
        have = HEAD_BYTES;
    if (bpf_probe_read_user(f->at.head + have, want, (void *)f->at.buffer) != 0)
        return false;
    bool whole = false;
    u32 i = 0;
    for (; i < HEAD_BYTES; i++) {
        if (i >= want)
            break;
        if (f->at.head[have + i] == '\n') {
            whole = true;
            i++;
            break;
        }
    }
    u32 got = i;
    bool tells = !f->trial.kind || f->trial.kind == TRIAL_LINE;
    if (f->stream.protocol == PROTOCOL_HTTP1 && f->message.state == HTTP1_START && tells &&
        keep_methods) {
        u32 at = f->message.line_bytes;
        if (at <= PIECE_BYTES - HEAD_BYTES && got <= HEAD_BYTES &&
            bpf_probe_read_user(f->line.line + at, got, (void *)f->at.buffer) == 0)
            f->message.line_bytes = at + got;
    }
    advance_cursor(f, got);
    f->at.have = have + got > HEAD_BYTES ? HEAD_BYTES : have + got;
    f->at.line_read += got;
    return !whole || line_is_there(f, f->at.line_read);
}

struct steps {
    struct framer *framer;
};

static long take_step(u32 index, struct steps *steps)
{
    struct framer *f = steps->framer;
    if (!f->at.left)
        return 1;
    if (!f->at.buffer_left) {
        if (next_buffer(f))
            return 0;
        f->stream.lost = 1;
        return 1;
    }
    u64 bytes = f->at.buffer_left < f->at.left ? f->at.buffer_left : f->at.left;
    if (f->at.skip) {
        skip_bytes(f, bytes);
        if (f->at.skip || !f->at.left || !f->at.buffer_left)
            return 0;
        bytes = f->at.buffer_left < f->at.left ? f->at.buffer_left : f->at.left;
    }
    if (f->at.mode == MODE_LINE ? read_line(f, bytes) : read_head(f, bytes))
        return 0;
    f->stream.lost = 1;
    return 1;
}

/* Goes through the bytes of the call. Returns whether it stopped before the limit of steps: at the
 * end of the bytes, or where they make no sense. Global, so that the verifier checks it only
 * once. */
__noinline int go_through(struct framer *f, u32 most)
{
    struct steps steps = {.framer = f};
    if (!f)
        return 0;
    u32 made = bpf_loop(most, take_step, &steps, 0);
    f->stream.why = made < most ? GAP_SENSELESS : GAP_LONG;
    if (f->at.left)
        f->stream.lost = 1;
    return made < most;
}

/* Whether the framer is at the beginning of a message. */
static __always_inline bool is_between(struct framer *f)
{
    return !f->at.skip && !f->at.have && f->message.state == 0;
}

/* Whether the call's bytes follow the framer's protocol, from the first one on. `first`: HTTP/2 is
 * only assumed. */
static __always_inline bool makes_sense(struct framer *f, bool first)
{
    if (!begin_at_message(f))
        return false;
    f->trial.kind = first ? TRIAL_FIRST : TRIAL_AGAIN;
    f->stream.lost = 0;
    bool ended = go_through(f, TRIAL_STEPS);
    f->trial.kind = TRIAL_NONE;
    bool whole = !f->stream.lost && f->trial.frames && is_between(f);
    if (!first)
        return whole || (f->stream.protocol == PROTOCOL_HTTP2 && f->trial.frames >= 3);
    if (!whole)
        f->trial.opened = 0;
    return !(f->stream.lost && ended) && http2_proven(f, whole);
}

/* Reads the first bytes of the call into `head`. */
static __always_inline void peek_head(struct framer *f)
{
    f->stream.protocol = PROTOCOL_UNKNOWN;
    next_head(f, 0, f->at.left < HEAD_BYTES ? f->at.left : HEAD_BYTES);
    f->at.skip = 0;
    go_through(f, 16);
    f->stream.lost = 0;
}

/* Attempts to acquire a framer. Another CPU holds it for a few hundred nanoseconds, when both are
 * at the beginning of the same connection. */
#define MOST_WAITS 256

struct attempt {
    struct framer *framer;
    bool failed;
};

static long attempt_claim(u32 index, struct attempt *attempt)
{
    attempt->failed = __sync_val_compare_and_swap(&attempt->framer->busy, 0, 1);
    return !attempt->failed;
}

/* Global, as go_through() is. */
__noinline int acquire_framer(struct framer *f)
{
    struct attempt made = {.framer = f, .failed = true};
    if (f)
        bpf_loop(MOST_WAITS, attempt_claim, &made, 0);
    return !made.failed;
}

static __always_inline void release_framer(struct framer *f)
{
    STORE_LAST(&f->busy, 0);
}

/* When all framers are in use, a new stream gets a framer that was not used since the last look at
 * it: a clock hand goes round. */
static u64 framers_given;
static u64 framers_hand;

#define MOST_SPARED 96  /* the hand spares framers in use among this many */
#define MOST_SOUGHT 128 /* most framers that the hand looks at */

struct search {
    u32 place; /* 0: none; else 1 more than the index of the framer, which is acquired */
};

static long seek_framer(u32 index, struct search *search)
{
    u32 place = (u32)__sync_fetch_and_add(&framers_hand, 1) % most_framers;
    struct framer *f = bpf_map_lookup_elem(&framers, &place);
    if (!f)
        return 1;
    if (f->used && index < MOST_SPARED) {
        f->used = 0;
        return 0;
    }
    if (__sync_val_compare_and_swap(&f->busy, 0, 1))
        return 0;
    search->place = place + 1;
    return 1;
}

static __always_inline u32 seek_place(void)
{
    struct search search = {};
    if (*(volatile u64 *)&framers_given < most_framers) {
        u32 place = __sync_fetch_and_add(&framers_given, 1);
        struct framer *f = place < most_framers ? bpf_map_lookup_elem(&framers, &place) : 0;
        if (f && !__sync_val_compare_and_swap(&f->busy, 0, 1))
            return place + 1;
    }
    bpf_loop(MOST_SOUGHT, seek_framer, &search, 0);
    return search.place;
}

/* Whether it is known where the next message of the stream begins. */
static __always_inline bool is_followed(struct framer *f)
{
    return f->stream.protocol != PROTOCOL_UNKNOWN && f->stream.protocol != PROTOCOL_OTHER &&
           !f->stream.lost && !f->trial.kind;
}

/* Takes a framer away from its stream. If the stream is between two messages, its next framer
 * continues where this one ends: the stream's next call creates it. */
static __always_inline void take_away(struct framer *f)
{
    struct framer_key former = {.channel = f->channel, .side = f->stream.side};
    if (!f->channel)
        return;
    DROP(TABLE_FRAMERS, &framer_places, &former);
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &former.channel);
    if (is_followed(f)) {
        if (bytes && is_between(f))
            bytes->framed[former.side & 1] =
                FRAMED(f->stream.protocol, f->stream.role) | FRAMED_BETWEEN;
        else
            tell_gap(f, GAP_FORGOTTEN, bpf_ktime_get_ns());
    }
    f->channel = 0;
}

/* Resets a framer: its next byte is the first of a stream. */
static __always_inline void start_stream(struct framer *f, u64 side)
{
    __builtin_memset(&f->at, 0, sizeof(*f) - __builtin_offsetof(struct framer, at));
    f->stream.side = side;
    f->stream.fresh = 1;
}

/* Returns a new framer for a stream; 0: none is available. */
static __noinline struct framer *make_framer(u64 channel, u64 side)
{
    struct framer_key key = {.channel = channel, .side = side};
    u32 place = seek_place();
    if (!place) {
        count_refused(TABLE_FRAMERS);
        return 0;
    }
    place--;
    struct framer *f = bpf_map_lookup_elem(&framers, &place);
    if (!f)
        return 0;
    take_away(f);
    start_stream(f, side);
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &channel);
    u16 framed = bytes ? bytes->framed[side & 1] : 0;
    if (framed && framed != FRAMED_ANEW) { /* the stream has had a framer */
        f->stream.protocol = FRAMED_PROTOCOL(framed);
        f->stream.role = FRAMED_ROLE(framed);
        f->stream.noted = f->stream.tries = f->stream.piece_gap = 1;
        f->stream.fresh = framed & FRAMED_BETWEEN ? 1 : 0;
        f->stream.lost = !f->stream.fresh && f->stream.protocol != PROTOCOL_UNKNOWN &&
                         f->stream.protocol != PROTOCOL_OTHER;
        if (f->stream.fresh)
            begin_at_message(f);
    }
    f->used = 1;
    f->channel = channel;
    /* Released before it can be found: otherwise a CPU held up in between (an interrupt, a
     * hypervisor) would let the stream's first call wait in vain. Meanwhile only the hand could
     * take the framer away, and it spares framers in use. A call that finds a framer which was
     * taken away detects that by its channel. */
    release_framer(f);
    long error = ADD(TABLE_FRAMERS, &framer_places, &key, &place);
    if (error) /* another CPU was quicker, or there is no room */
        __sync_val_compare_and_swap(&f->channel, channel, 0);
    return error ? 0 : f;
}

static __always_inline struct framer *framer_of(u64 channel, u64 side)
{
    struct framer_key key = {.channel = channel, .side = side};
    u32 *place = bpf_map_lookup_elem(&framer_places, &key);
    if (!place) {
        struct framer *f = make_framer(channel, side);
        if (f)
            return f;
        place = bpf_map_lookup_elem(&framer_places, &key);
        if (!place)
            return 0;
    }
    u32 index = *place;
    return bpf_map_lookup_elem(&framers, &index);
}

/* Sets the protocol of the answers, on a channel whose own first bytes do not reveal it. Their
 * framer is not acquired: if this CPU were held up meanwhile, the answer would find the framer busy
 * and be lost. Global for the same reason as go_through(). */
__noinline int expect_answers(u64 channel, u64 side, u32 protocol)
{
    struct framer *f = framer_of(channel, side);
    if (!f)
        return 0;
    *(volatile u64 *)&f->expected = EXPECTED(channel, protocol);
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &channel);
    if (bytes && (f->stream.protocol == PROTOCOL_UNKNOWN || f->stream.protocol == PROTOCOL_OTHER))
        bytes->unreadable = 0;
    return 0;
}

/* Takes over the protocol that was found in the other direction. */
static __always_inline void take_expected(struct framer *f)
{
    u64 expected = *(volatile u64 *)&f->expected;
    if (!expected)
        return;
    f->expected = 0;
    u8 protocol = EXPECTED_PROTOCOL(expected);
    if (expected != EXPECTED(f->channel, protocol))
        return;
    if (f->trial.kind == TRIAL_SERVER) {
        f->trial.kind = TRIAL_NONE;
        if (protocol == PROTOCOL_HTTP2) { /* everything so far has been followed */
            f->stream.role = UNIT_FROM_SERVER;
            f->stream.piece_begin = 1;
            return;
        }
        f->stream.protocol = PROTOCOL_UNKNOWN;
    }
    if (f->stream.protocol != PROTOCOL_UNKNOWN && f->stream.protocol != PROTOCOL_OTHER)
        return;
    f->stream.protocol = protocol;
    f->stream.role = UNIT_FROM_SERVER;
    f->stream.lost = !f->stream.fresh;
    f->stream.piece_begin = f->stream.fresh;
    f->stream.noted = 0;
    begin_at_message(f);
}

/* Puts the calls of a channel in order; bytes between two of them were never seen. Returns false
 * for a call that is recorded late. */
static __always_inline bool close_gap(struct framer *f, u64 start)
{
    if (f->stream.fresh)
        f->at.next = start;
    f->stream.fresh = 0;
    if (f->at.next == start)
        return true;
    u64 gap = start - f->at.next;
    if (!start) { /* the channel was evicted and is counted anew: bpf/channels.h */
        if (f->stream.followed)
            tell_gap(f, GAP_FORGOTTEN, f->call.now_ns);
        f->stream.followed = 0;
        f->stream.lost = 1;
        return true;
    }
    if (start < f->at.next && f->at.next - start < LATE_BYTES)
        return false; /* recorded late: later bytes have been seen */
    if (f->at.skip < gap ||
        f->at.skip > MOST_GAP) { /* perhaps another connection between the same ends */
        if (f->stream.followed && f->at.skip <= MOST_GAP && gap < LEAST_APART)
            tell_gap(f, GAP_UNSEEN, f->call.now_ns);
        f->stream.followed = 0;
        f->stream.lost = 1;
        f->trial.opened = 0;
        return true;
    }
    f->at.skip -= gap;
    if (f->stream.protocol == PROTOCOL_HTTP2 && f->message.state == HTTP2_BLOCK) {
        f->message.state = f->at.skip ? HTTP2_BLOCK : HTTP2_FRAME;
        f->message.pieces_left = 0;
        f->stream.sequence++;
        f->stream.piece_gap = 1;
    }
    return true;
}

/* Nothing is read from a stream any more. */
static __always_inline void leave_alone(struct framer *f, const struct socket_transfer *t, u64 side)
{
    f->at.next = t->end;
    f->stream.protocol = PROTOCOL_OTHER;
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &t->channel);
    if (bytes)
        __sync_fetch_and_or(&bytes->unreadable, 1U << side);
}

/* Passes over bytes that make no sense: they may be the middle of a message. A stream whose bytes
 * never make sense is left alone after MOST_TRIES calls. */
static __always_inline void pass_over(struct framer *f, const struct socket_transfer *t, u64 side)
{
    f->at.next = t->end;
    f->stream.lost = f->stream.protocol != PROTOCOL_UNKNOWN;
    if (!f->stream.lost && ++f->stream.tries >= MOST_TRIES)
        leave_alone(f, t, side);
}

/* Follows what may be the first frames of an HTTP/2 server; false: they are not. */
static __always_inline bool follow_server(struct framer *f)
{
    go_through(f, TRIAL_STEPS);
    if (!f->stream.lost)
        return true;
    f->trial.kind = TRIAL_NONE;
    f->stream.protocol = PROTOCOL_UNKNOWN;
    f->stream.tries = 1;
    return false;
}

/* When no message is under way: whether one begins with the call's first byte. */
static __always_inline bool find_begin(struct framer *f, const struct task_state *state,
                                       struct pt_regs *regs)
{
    const struct socket_transfer *t = &state->socket;
    u64 side = !(t->flags & SYSCALL_WRITE);
    u8 former = f->stream.protocol;
    peek_head(f);
    u8 known = protocol_of(f, !attaching && !former && !f->stream.tries);
    /* Only a stream older than the capture can have a beginning that was not seen. */
    bool frames = attaching && !former && http2_plausible(f->at.head, true);
    bool settings = !former && !f->stream.tries && http2_settings(f->at.head, f->at.have);
    f->stream.protocol = known    ? known
                         : former ? former
                         : frames ? PROTOCOL_HTTP2
                                  : PROTOCOL_UNKNOWN;
    find_buffers(f, state, regs);
    if (!known && settings) {
        f->stream.protocol = PROTOCOL_HTTP2;
        f->trial.kind = TRIAL_SERVER;
        f->stream.lost = 0;
        begin_at_message(f);
        if (!follow_server(f))
            pass_over(f, t, side);
        return false;
    }
    if (!known && !former && http1_may_begin(f->at.head, f->at.have)) {
        f->stream.protocol = PROTOCOL_HTTP1;
        f->trial.kind = TRIAL_LINE;
        f->stream.lost = 0;
        begin_at_message(f);
        return true;
    }
    if (!known) {
        bool sense = f->stream.protocol && makes_sense(f, frames);
        find_buffers(f, state, regs);
        if (!sense) {
            f->stream.protocol = former;
            pass_over(f, t, side);
            return false;
        }
    }
    f->stream.after_gap = f->stream.piece_gap = !known || former;
    f->stream.lost = 0;
    f->stream.followed = 1;
    begin_at_message(f);
    if (known == PROTOCOL_HTTP2) {
        f->stream.piece_begin = 1;
        if (f->stream.role == UNIT_FROM_CLIENT)
            next_head(f, HTTP2_PREFACE, HTTP2_PREFACE_BYTES);
    }
    if (known && !answers_tell(known) && f->stream.role == UNIT_FROM_CLIENT) {
        expect_answers(t->reverse, side, known);
        expect_answers(t->reverse, !side, known);
    }
    return true;
}

/* Ends a trial: the stream does not speak the assumed protocol. */
static __always_inline void give_up_trial(struct framer *f)
{
    f->trial.kind = TRIAL_NONE;
    f->stream.protocol = PROTOCOL_UNKNOWN;
}

static __always_inline void look_at(struct framer *f, const struct task_state *state,
                                    struct pt_regs *regs)
{
    const struct socket_transfer *t = &state->socket;
    if (!close_gap(f, t->end - t->bytes))
        return;
    if (!find_buffers(f, state, regs))
        return; /* a gap, which the next call finds */
    if (f->trial.kind == TRIAL_LINE && f->stream.lost) {
        give_up_trial(f); /* some of the line was never seen */
        f->stream.lost = 0;
    }
    if (f->trial.kind == TRIAL_SERVER) {
        if (!f->stream.lost && follow_server(f))
            return;
        give_up_trial(f);
        find_buffers(f, state, regs);
    }
    if (f->stream.protocol == PROTOCOL_UNKNOWN || f->stream.lost) {
        if (!find_begin(f, state, regs))
            return;
    } else if (f->stream.protocol == PROTOCOL_HTTP1 && f->at.skip &&
               f->at.skip == f->message.total && f->stream.role == UNIT_FROM_SERVER) {
        /* An answer to HEAD announces a body that does not come. */
        u64 body = f->at.skip;
        peek_head(f);
        if (http1_response(f->at.head, f->at.have))
            body = 0;
        find_buffers(f, state, regs);
        f->stream.protocol = PROTOCOL_HTTP1;
        begin_at_message(f);
        f->at.skip = body;
    }
    u64 side = !(t->flags & SYSCALL_WRITE);
    if (f->stream.protocol != PROTOCOL_OTHER)
        go_through(f, MOST_STEPS);
    if (f->stream.protocol == PROTOCOL_OTHER) {
        leave_alone(f, t, side);
        return;
    }
    if (!f->stream.lost)
        return;
    if (f->trial.kind == TRIAL_LINE) {
        give_up_trial(f);
        pass_over(f, t, side);
        return;
    }
    if (f->stream.followed)
        tell_gap(f, f->stream.why, f->call.now_ns);
    f->at.next = t->end;
}

/* A datagram is a message. */
static __always_inline void look_at_datagram(struct framer *f, const struct task_state *state,
                                             struct pt_regs *regs)
{
    const struct socket_transfer *t = &state->socket;
    u64 side = !(t->flags & SYSCALL_WRITE);
    u8 former = f->stream.protocol, type;
    bool status_known;
    if (former == PROTOCOL_OTHER || !find_buffers(f, state, regs))
        return;
    peek_head(f);
    f->stream.protocol = former;
    if (f->at.have < ONCRPC_LEAST_BYTES ||
        !oncrpc_message(f->at.head, f->at.have, &f->message.id, &type, f->message.numbers,
                        &status_known) ||
        (former != PROTOCOL_ONCRPC &&
         (type == UNIT_RESPONSE || !oncrpc_typical(f->at.head, f->at.have)))) {
        pass_over(f, t, side);
        return;
    }
    if (type == UNIT_REQUEST && former != PROTOCOL_ONCRPC) {
        f->stream.role = UNIT_FROM_CLIENT;
        expect_answers(t->reverse, side, PROTOCOL_ONCRPC);
        expect_answers(t->reverse, !side, PROTOCOL_ONCRPC);
    }
    f->stream.protocol = PROTOCOL_ONCRPC;
    f->message.unit = t->end - t->bytes;
    tell_unit(f, t->bytes, type, UNIT_LAST, 0, status_known);
}

/* Stores with the channel what the framer has found out, in case the framer is given to another
 * stream. */
static __always_inline void note_framer(struct framer *f, const struct socket_transfer *t, u64 side)
{
    bool is_known = f->stream.protocol != PROTOCOL_UNKNOWN && !f->trial.kind;
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &t->channel);
    if (!bytes)
        return;
    bytes->framed[side & 1] =
        is_known ? FRAMED(f->stream.protocol, f->stream.role) : FRAMED(PROTOCOL_UNKNOWN, 0);
    if (!side)
        bytes->written = 1;
    f->stream.noted = is_known ? 2 : 1;
}

__hidden __noinline void follow_frames(struct task_state *state, struct pt_regs *regs,
                                       const struct rec_syscall *sys)
{
    const struct socket_transfer *t = &state->socket;
    u64 side = !(t->flags & SYSCALL_WRITE);
    struct framer *f = framer_of(t->channel, side);
    if (!f)
        return;
    if (!acquire_framer(f)) {
        /* The next call would find the gap, but there may be no next call. */
        emit_gap(t->channel, t->reverse, t->end - t->bytes, gap_of(f, t->object_type, GAP_BUSY),
                 sys->hdr.ts_ns);
        return;
    }
    if (f->channel != t->channel || f->stream.side != side) {
        count_refused(TABLE_FRAMERS); /* it was given to another stream since it was found */
        release_framer(f);
        return;
    }
    if (!f->used)
        f->used = 1;
    if (t->framed == LOOK_ANEW)
        start_stream(f, side);
    f->call.reverse = t->reverse;
    f->call.object_type = t->object_type;
    f->call.now_ns = sys->hdr.ts_ns;
    f->call.tid = sys->hdr.tid;
    take_expected(f);
    f->stream.followed = is_followed(f);
    if (t->object_type == OBJECT_UDP)
        look_at_datagram(f, state, regs);
    else
        look_at(f, state, regs);
    if (f->stream.noted < 1 + (f->stream.protocol != PROTOCOL_UNKNOWN))
        note_framer(f, t, side);
    release_framer(f);
}
