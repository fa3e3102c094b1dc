/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the framer keeps of one direction of a connection, and what each protocol may do with it. */
#pragma once
#include "channels.h"

/* Of a header that is being read, and of a line only the begin. */
#define HEAD_BYTES 32

/* How the framer moves on. A protocol's step chooses it. */
enum framer_mode {
    MODE_HEAD, /* collect `need` bytes into `head` */
    MODE_LINE, /* collect the begin of a line, up to its end */
};

/* Looks whether the bytes make sense, and tells nothing. */
enum framer_trial {
    TRIAL_NONE,
    TRIAL_AGAIN,  /* the protocol is known, and where a message begins is not */
    TRIAL_FIRST,  /* not even the protocol is, as the stream is older than the capture */
    TRIAL_SERVER, /* a server may have begun to speak HTTP/2; kept until its client has, too */
    TRIAL_LINE,   /* the first line of a message of HTTP/1 may have begun; kept until its end */
};

/* Where a framer is: in its stream, in the bytes that the running call moved, and in what it reads.
 */
struct framer_cursor {
    u64 next; /* number of the byte that comes next */
    u64 skip; /* so many bytes are not looked at */
    u64 buffer;
    u64 buffer_left;
    u64 iovecs;
    u64 messages; /* of a call that moves several */
    u32 messages_left;
    u32 message_left; /* bytes of the present one, behind the present buffer */
    u32 iovecs_left;
    u32 left;      /* of the bytes the call moved */
    u32 line_read; /* bytes of the line that is being read */
    u8 mode;       /* enum framer_mode */
    u8 have;       /* bytes in `head` */
    u8 need;
    u8 pad;
    u8 head[HEAD_BYTES * 2];
};

/* The message or frame that is being read, as its protocol has it. */
struct framer_message {
    u64 unit;  /* number of its first byte */
    u64 total; /* of it, as its protocol counts */
    u32 id;
    u32 numbers[3];
    u32 pieces_left;
    u32 line_bytes; /* of what names it; 0: nothing does */
    u8 state;       /* the protocol's own; 0: at the begin of a message */
    u8 type;
    u8 flags;
    u8 words; /* that may still be of the command's name */
};

/* What is known of the stream. */
struct framer_stream {
    u32 sequence; /* pieces sent */
    u8 protocol;
    u8 role; /* UNIT_FROM_* */
    u8 side; /* 0: of who writes; 1: of who reads */
    u8 tries;
    u8 fresh;     /* has seen no call yet */
    u8 noted;     /* with its channel: there is one, and what it has found out */
    u8 lost;      /* where the next message begins is not known */
    u8 why;       /* it was lost: enum gap */
    u8 followed;  /* it was not, as the call began */
    u8 after_gap; /* not told yet */
    u8 piece_gap; /* likewise, of pieces */
    u8 piece_begin;
};

/* What a trial has seen. */
struct framer_evidence {
    u32 frames;
    u32 open_block;     /* the HTTP/2 stream whose headers go on in the next frame */
    u32 ended_stream;   /* the last one that ended */
    u32 headers_stream; /* the last one that had headers */
    u32 evidence;       /* of HTTP/2, in this call */
    u32 opened_stream;  /* the last one that had headers in this call or one before */
    u32 opened;         /* how many were opened one after the other, likewise */
    u8 kind;            /* enum framer_trial */
};

/* Of the running call, for what is told of it. */
struct framer_call {
    u64 reverse;
    u64 now_ns;
    u32 tid;
    u16 object_type;
};

struct framer {
    /* These are changed by whoever has it (`busy`), but for `used` and `expected`, and stay when it
     * is given to another stream. */
    u64 channel;  /* whose it is, with `stream.side`; 0: nobody's */
    u64 expected; /* EXPECTED(): the protocol, as the other direction tells */
    u32 busy;
    u32 used; /* since it was last looked at who could do without theirs */
    /* From here on all of it is the stream's. */
    struct framer_cursor at;
    struct framer_message message;
    struct framer_stream stream;
    struct framer_evidence trial;
    struct framer_call call;
    union { /* to be sent */
        struct rec_header_block block;
        struct rec_line line;
    };
};

/* What a channel knows of a framer that it has had. FRAMED_BETWEEN: that was taken away between two
 * messages. */
#define FRAMED(protocol, role) (1 << 15 | (role) << 8 | (protocol))
#define FRAMED_BETWEEN (1 << 14)
#define FRAMED_ROLE(framed) ((framed) >> 8 & 0x3f)
#define FRAMED_PROTOCOL(framed) ((framed) & 0xff)

/* By the channel, as a framer may have become another's meanwhile. */
#define EXPECTED(channel, protocol) ((channel) << 3 | (protocol))
#define EXPECTED_PROTOCOL(expected) ((expected) & 7)

/* The bytes of a message, numbered in the order of the network. */
static __always_inline u32 be32(const u8 *bytes)
{
    return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

/* Next comes a header of so many bytes (of which `have` are there). */
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

/* `what`: the type, the flags, what is told of it and whether its status is known, a byte each.
 * Global, so that the verifier looks at it only once. */
int emit_unit(struct framer *f, u64 bytes, u32 what);

/* Tells that the framing of a stream is lost. `what`: the object's type, the protocol, why, and the
 * role. Global likewise. */
int emit_gap(u64 channel, u64 reverse, u64 offset, u64 what, u64 now_ns);

static __always_inline u64 gap_of(struct framer *f, u16 object_type, u8 why)
{
    return (u64)f->stream.role << 32 | (u32)why << 24 | (u32)f->stream.protocol << 16 | object_type;
}

/* What is found in a call is told with the call's time, before the messages that come after. */
static __always_inline void tell_gap(struct framer *f, u8 why, u64 now_ns)
{
    emit_gap(f->channel, f->call.reverse, f->at.next, gap_of(f, f->call.object_type, why), now_ns);
    f->stream.followed = 0;
}

/* Tells a unit of `bytes` bytes that began at `f->message.unit`. */
static __always_inline void tell_unit(struct framer *f, u64 bytes, u8 type, u8 flags, u8 told,
                                      bool status_known)
{
    emit_unit(f, bytes, type | flags << 8 | told << 16 | (u32)status_known << 24);
}

/* Tells the line that names the unit just told. Global likewise. */
int tell_line(struct framer *f);

/* Looks at what frames the running call's transfer has moved. Not inlined: what it needs of the
 * stack is then its own. */
__hidden void follow_frames(struct task_state *state, struct pt_regs *regs,
                            const struct rec_syscall *sys);
