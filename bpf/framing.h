/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* State that the framer keeps of one direction of a connection, and what each protocol may do with
 * it. */
#pragma once
#include "channels.h"

/* Bytes kept of the header being read, or of the beginning of a line. */
#define HEAD_BYTES 32

/* How the framer proceeds. A protocol's step chooses the mode. */
enum framer_mode {
    MODE_HEAD, /* collect `need` bytes into `head` */
    MODE_LINE, /* collect the beginning of a line, up to its end */
};

/* Trials: the framer checks whether the bytes make sense, and records nothing. */
enum framer_trial {
    TRIAL_NONE,
    TRIAL_AGAIN,  /* the protocol is known, but not where a message begins */
    TRIAL_FIRST,  /* the protocol is not known either, as the stream is older than the capture */
    TRIAL_SERVER, /* a server may have begun HTTP/2; lasts until its client has begun it, too */
    TRIAL_LINE,   /* an HTTP/1 message's first line may have begun; lasts until its end */
};

/* The framer's position: in its stream, in the bytes that the running call moved, and in the header
 * or line it reads. */
struct framer_cursor {
    u64 next; /* number of the next byte */
    u64 skip; /* bytes still to be skipped */
    u64 buffer;
    u64 buffer_left;
    u64 iovecs;
    u64 messages; /* of a call that moves several: address of the next one */
    u32 messages_left;
    u32 message_left; /* bytes of the present one after the present buffer */
    u32 iovecs_left;
    u32 left;      /* of the bytes the call moved */
    u32 line_read; /* bytes read so far of the present line */
    u8 mode;       /* enum framer_mode */
    u8 have;       /* bytes in `head` */
    u8 need;
    u8 pad;
    u8 head[HEAD_BYTES * 2];
};

/* The message or frame being read, in its protocol's terms. */
struct framer_message {
    u64 unit;  /* number of its first byte */
    u64 total; /* protocol-specific: a length, or for RESP the values still to come */
    u32 id;
    u32 numbers[3];
    u32 pieces_left;
    u32 line_bytes; /* bytes of its name; 0: none */
    u8 state;       /* the protocol's own; 0: at the beginning of a message */
    u8 type;
    u8 flags;
    u8 words; /* RESP: words that may still be part of the command's name */
};

/* What is known of the stream. */
struct framer_stream {
    u32 sequence; /* pieces sent */
    u8 protocol;
    u8 role; /* UNIT_FROM_* */
    u8 side; /* 0: the writer's; 1: the reader's */
    u8 tries;
    u8 fresh;     /* has seen no call yet */
    u8 noted;     /* stored with its channel: 1: there is a framer; 2: also its protocol */
    u8 lost;      /* it is not known where the next message begins */
    u8 why;       /* why it was lost: enum gap */
    u8 followed;  /* it was not lost when the call began */
    u8 after_gap; /* there was a gap, to be recorded with the next unit */
    u8 piece_gap; /* likewise, with the next piece */
    u8 piece_begin;
};

/* What a trial has found. */
struct framer_evidence {
    u32 frames;
    u32 open_block;     /* the HTTP/2 stream whose headers continue in the next frame */
    u32 ended_stream;   /* the last stream that ended */
    u32 headers_stream; /* the last stream that had headers in this call */
    u32 evidence;       /* of HTTP/2, in this call */
    u32 opened_stream;  /* the last stream that had headers in this or an earlier call */
    u32 opened;         /* streams opened one after the other, likewise */
    u8 kind;            /* enum framer_trial */
};

/* Of the running call, for its records. */
struct framer_call {
    u64 reverse;
    u64 now_ns;
    u32 tid;
    u16 object_type;
};

struct framer {
    /* Only the holder of the framer (`busy`) changes these, except `used` and `expected`. They stay
     * when the framer is given to another stream. */
    u64 channel;  /* the stream it belongs to, with `stream.side`; 0: none */
    u64 expected; /* EXPECTED(): the protocol, as found in the other direction */
    u32 busy;
    u32 used; /* since the last search for a framer that can be taken away */
    /* Everything from here on belongs to the stream. */
    struct framer_cursor at;
    struct framer_message message;
    struct framer_stream stream;
    struct framer_evidence trial;
    struct framer_call call;
    union { /* record to be sent */
        struct rec_header_block block;
        struct rec_line line;
    };
};

/* What a channel keeps of a framer that it has had. FRAMED_BETWEEN: the framer was taken away
 * between two messages. */
#define FRAMED(protocol, role) (1 << 15 | (role) << 8 | (protocol))
#define FRAMED_BETWEEN (1 << 14)
#define FRAMED_ROLE(framed) ((framed) >> 8 & 0x3f)
#define FRAMED_PROTOCOL(framed) ((framed) & 0xff)

/* Contains the channel, because the framer may have been given to another stream meanwhile. */
#define EXPECTED(channel, protocol) ((channel) << 3 | (protocol))
#define EXPECTED_PROTOCOL(expected) ((expected) & 7)

/* Reads a number in network byte order. */
static __always_inline u32 be32(const u8 *bytes)
{
    return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

/* A header of `need` bytes comes next (`have` of them are there). */
static __always_inline void collect_header(struct framer *f, u8 need)
{
    f->at.mode = MODE_HEAD;
    f->at.need = need;
}

static __always_inline void next_head(struct framer *f, u8 state, u8 need)
{
    f->message.state = state;
    f->at.have = 0;
    collect_header(f, need);
}

static __always_inline void next_line(struct framer *f, u8 state)
{
    f->message.state = state;
    f->at.have = 0;
    f->at.line_read = 0;
    f->at.mode = MODE_LINE;
}

/* Records a unit. `what`: its type, its flags, the record's flags (UNIT_*) and whether its status
 * is known, one byte each. Global, so that the verifier checks it only once. */
int emit_unit(struct framer *f, u64 bytes, u32 what);

/* Records that the framing of a stream is lost. `what`: the object's type, the protocol, the reason
 * and the role. Global for the same reason. */
int emit_gap(u64 channel, u64 reverse, u64 offset, u64 what, u64 now_ns);

static __always_inline u64 gap_of(struct framer *f, u16 object_type, u8 why)
{
    return (u64)f->stream.role << 32 | (u32)why << 24 | (u32)f->stream.protocol << 16 | object_type;
}

/* A gap found in a call is recorded with the call's time, before the messages that come after
 * it. */
static __always_inline void tell_gap(struct framer *f, u8 why, u64 now_ns)
{
    emit_gap(f->channel, f->call.reverse, f->at.next, gap_of(f, f->call.object_type, why), now_ns);
    f->stream.followed = 0;
}

/* Records a unit of `bytes` bytes that began at `f->message.unit`. */
static __always_inline void tell_unit(struct framer *f, u64 bytes, u8 type, u8 flags, u8 told,
                                      bool status_known)
{
    emit_unit(f, bytes, type | flags << 8 | told << 16 | (u32)status_known << 24);
}

/* Records the line that names the unit just recorded. Global for the same reason. */
int tell_line(struct framer *f);

/* Follows the frames in the running call's transfer. Not inlined, so that its stack use is its
 * own. */
__hidden void follow_frames(struct task_state *state, struct pt_regs *regs,
                            const struct rec_syscall *sys);
