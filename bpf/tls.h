/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * TLS (RFC 8446): its records are followed up to the first one with encrypted data. So a capture
 * can tell which connections are encrypted, and which of their messages are handshakes.
 */
#pragma once
#include "framing.h"

#define TLS_HEADER_BYTES 5
#define TLS_CHANGE_CIPHER_SPEC 20
#define TLS_ALERT 21
#define TLS_HANDSHAKE 22
#define TLS_DATA 23
#define TLS_CLIENT_HELLO 1
#define TLS_SERVER_HELLO 2
/* A record's text, and the most that encryption adds to it (RFC 5246, section 6.2.3). */
#define TLS_MOST_BYTES ((1 << 14) + 2048)
/* Of a hello: its header, version, random number, and the lengths of what follows. */
#define TLS_LEAST_HELLO_BYTES 42
/* Of encrypted data: the tag, and the type of what is encrypted (RFC 8446, section 5.2). */
#define TLS_LEAST_DATA_BYTES 17

/* The length of the record whose header is in `head`; -1: it is none. */
static __always_inline s32 tls_record(const u8 *head)
{
    u32 bytes = head[3] << 8 | head[4];
    return head[1] == 3 && head[2] <= 3 && bytes <= TLS_MOST_BYTES ? (s32)bytes : -1;
}

static __always_inline void tls_begin(struct framer *f)
{
    next_head(f, 0, TLS_HEADER_BYTES);
}

static __always_inline void tls_tell(struct framer *f, u8 why)
{
    if (!f->trial.kind)
        emit_gap(f->channel, f->call.reverse, f->at.next - TLS_HEADER_BYTES,
                 gap_of(f, f->call.object_type, why), f->call.now_ns);
}

static __always_inline bool tls_head(struct framer *f)
{
    s32 bytes = tls_record(f->at.head);
    if (bytes < 0)
        return false;
    tls_begin(f);
    f->trial.frames++;
    switch (f->at.head[0]) {
    case TLS_HANDSHAKE:
    case TLS_CHANGE_CIPHER_SPEC:
        tls_tell(f, GAP_HANDSHAKE);
        f->at.skip = bytes;
        return true;
    case TLS_ALERT:
    case TLS_DATA: /* nothing is read from here on */
        if (attaching)
            tls_tell(f, GAP_ENCRYPTED);
        f->stream.protocol = PROTOCOL_OTHER;
        f->at.left = 0;
        return true;
    }
    return false;
}

static __always_inline bool tls_line(struct framer *f, u32 line_bytes)
{
    return false;
}

/* A hello, or on a connection that may be older than the capture, encrypted data. OpenSSL reads a
 * record's header by a call of its own, so the rest of a hello may not be there. */
static __always_inline bool tls_recognized(struct framer *f, u32 first)
{
    const u8 *head = f->at.head;
    s32 bytes = f->at.have >= TLS_HEADER_BYTES ? tls_record(head) : -1;
    if (head[0] == TLS_DATA)
        return attaching && bytes >= TLS_LEAST_DATA_BYTES;
    return head[0] == TLS_HANDSHAKE && bytes >= TLS_LEAST_HELLO_BYTES &&
           (f->at.have == TLS_HEADER_BYTES || head[TLS_HEADER_BYTES] == TLS_CLIENT_HELLO ||
            head[TLS_HEADER_BYTES] == TLS_SERVER_HELLO);
}
