/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ONC RPC (RFC 5531): records of fragments, each with a mark of four bytes. oncrpc_message() does
 * not handle marks, so it serves datagrams as well.
 */
#pragma once
#include "framing.h"

enum oncrpc_state {
    ONCRPC_MARK,    /* at the beginning of a message */
    ONCRPC_MESSAGE, /* its mark and the beginning of its header are there */
    ONCRPC_MORE,    /* at the mark of a further fragment */
};

#define ONCRPC_CALL 0
#define ONCRPC_REPLY 1
#define ONCRPC_MARK_BYTES 4
#define ONCRPC_LAST (1U << 31)
#define ONCRPC_VERSION 2
/* A call up to its procedure, or a reply up to its status. */
#define ONCRPC_MESSAGE_BYTES 24
/* Least size of a message of either kind: XID, type, reply_stat and what follows. */
#define ONCRPC_LEAST_BYTES 20
#define ONCRPC_DENIED 0x100 /* status: added to reject_stat */

/* Reads the first `have` bytes of a message, at least ONCRPC_LEAST_BYTES. Returns whether they can
 * be a message. */
static __always_inline bool oncrpc_message(const u8 *m, u32 have, u32 *id, u8 *type, u32 numbers[3],
                                           bool *status_known)
{
    *id = be32(m);
    *status_known = false;
    u32 kind = be32(m + 4), third = be32(m + 8);
    if (kind == ONCRPC_CALL) {
        if (third != ONCRPC_VERSION || have < ONCRPC_MESSAGE_BYTES)
            return false;
        *type = UNIT_REQUEST;
        numbers[0] = be32(m + 12);
        numbers[1] = be32(m + 16);
        numbers[2] = be32(m + 20);
        return true;
    }
    if (kind != ONCRPC_REPLY || third > 1)
        return false;
    *type = UNIT_RESPONSE;
    numbers[0] = numbers[1] = numbers[2] = 0;
    if (third == 1) {
        numbers[0] = ONCRPC_DENIED + be32(m + 12);
        *status_known = true;
        return numbers[0] <= ONCRPC_DENIED + 1;
    }
    if (be32(m + 16) > 400)
        return false; /* the verifier's length */
    if (be32(m + 16) == 0 && have >= ONCRPC_MESSAGE_BYTES) {
        numbers[0] = be32(m + 20);
        *status_known = true;
        return numbers[0] <= 5;
    }
    return true;
}

static __always_inline void oncrpc_begin(struct framer *f)
{
    next_head(f, ONCRPC_MARK, ONCRPC_MARK_BYTES);
}

/* Program numbers start here (RFC 5531, section 13), and credentials have these flavors. They are
 * checked because a call type of zero and a version of two alone occur in other protocols, too. */
#define ONCRPC_FIRST_PROGRAM 100000
#define ONCRPC_LAST_FLAVOR 7
#define ONCRPC_FIRST_PSEUDO_FLAVOR 390000
#define ONCRPC_LAST_PSEUDO_FLAVOR 390255

/* Whether a call begins like this, which identifies the protocol of a stream or of a sender of
 * datagrams; `have` bytes of it are there. */
static __always_inline bool oncrpc_typical(const u8 *call, u32 have)
{
    if (have < ONCRPC_MESSAGE_BYTES + 4)
        return false;
    u32 flavor = be32(call + ONCRPC_MESSAGE_BYTES);
    return be32(call + 4) == ONCRPC_CALL && be32(call + 8) == ONCRPC_VERSION &&
           be32(call + 12) >= ONCRPC_FIRST_PROGRAM &&
           (flavor <= ONCRPC_LAST_FLAVOR ||
            (flavor >= ONCRPC_FIRST_PSEUDO_FLAVOR && flavor <= ONCRPC_LAST_PSEUDO_FLAVOR));
}

/* Whether a connection's first bytes are a call. */
static __always_inline bool oncrpc_call(const u8 *head, u32 have)
{
    return have >= ONCRPC_MARK_BYTES && (be32(head) & ~ONCRPC_LAST) >= ONCRPC_MESSAGE_BYTES + 4 &&
           oncrpc_typical(head + ONCRPC_MARK_BYTES, have - ONCRPC_MARK_BYTES);
}

static __always_inline bool oncrpc_head(struct framer *f)
{
    u32 mark = be32(f->at.head), bytes = mark & ~ONCRPC_LAST;
    u8 flags = mark & ONCRPC_LAST ? UNIT_LAST : 0;
    bool status_known = false;
    switch (f->message.state) {
    case ONCRPC_MARK:
        if (bytes < ONCRPC_LEAST_BYTES)
            return false; /* no message, or one cut into tiny fragments */
        f->message.unit = f->at.next - ONCRPC_MARK_BYTES;
        f->message.state = ONCRPC_MESSAGE;
        collect_header(f,
                       ONCRPC_MARK_BYTES + (bytes < ONCRPC_MESSAGE_BYTES ? ONCRPC_LEAST_BYTES
                                                                         : ONCRPC_MESSAGE_BYTES));
        return true;
    case ONCRPC_MESSAGE:
        if (!oncrpc_message(f->at.head + ONCRPC_MARK_BYTES, f->at.need - ONCRPC_MARK_BYTES,
                            &f->message.id, &f->message.type, f->message.numbers, &status_known))
            return false;
        f->trial.frames++;
        tell_unit(f, ONCRPC_MARK_BYTES + (u64)bytes, f->message.type, flags, 0, status_known);
        f->at.skip = ONCRPC_MARK_BYTES + (u64)bytes - f->at.need;
        break;
    case ONCRPC_MORE:
        f->message.unit = f->at.next - ONCRPC_MARK_BYTES;
        tell_unit(f, ONCRPC_MARK_BYTES + (u64)bytes, UNIT_MORE, flags, 0, false);
        f->at.skip = bytes;
        break;
    }
    next_head(f, flags ? ONCRPC_MARK : ONCRPC_MORE, ONCRPC_MARK_BYTES);
    return true;
}

/* ONC RPC has no lines. */
static __always_inline bool oncrpc_line(struct framer *f, u32 line_bytes)
{
    return false;
}

static __always_inline bool oncrpc_recognized(struct framer *f, u32 first)
{
    if (!oncrpc_call(f->at.head, f->at.have))
        return false;
    f->stream.role = UNIT_FROM_CLIENT;
    return true;
}
