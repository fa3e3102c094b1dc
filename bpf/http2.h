/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* HTTP/2 (RFC 9113): frames with a header of nine bytes. */
#pragma once
#include "framing.h"

enum http2_frame {
    HTTP2_DATA,
    HTTP2_HEADERS,
    HTTP2_PRIORITY,
    HTTP2_RST_STREAM,
    HTTP2_SETTINGS,
    HTTP2_PUSH_PROMISE,
    HTTP2_PING,
    HTTP2_GOAWAY,
    HTTP2_WINDOW_UPDATE,
    HTTP2_CONTINUATION,
};

enum http2_state {
    HTTP2_FRAME, /* at the beginning of a frame */
    HTTP2_PREFACE,
    HTTP2_BLOCK, /* in the payload of a frame with headers */
    HTTP2_ERROR, /* in the payload of a frame with an error code */
};

#define HTTP2_HEADER_BYTES 9
#define HTTP2_END_STREAM 0x1
#define HTTP2_END_HEADERS 0x4
#define HTTP2_PREFACE_BYTES 24
/* Most header bytes kept of one frame. Requests with longer headers have no names. */
#define HTTP2_MOST_BLOCK_BYTES 16384

/* Largest payload of a frame, unless the peer has allowed more (SETTINGS_MAX_FRAME_SIZE). */
#define HTTP2_USUAL_FRAME_BYTES 16384

/* "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", of which a call may have moved only the beginning. */
static __always_inline bool http2_preface(const u8 *head, u32 have)
{
    if (have < 16 || be32(head) != 0x50524920 || be32(head + 4) != 0x2a204854 ||
        be32(head + 8) != 0x54502f32 || be32(head + 12) != 0x2e300d0a)
        return false;
    return have < HTTP2_PREFACE_BYTES ||
           (be32(head + 16) == 0x0d0a534d && be32(head + 20) == 0x0d0a0d0a);
}

/*
 * Whether a frame is evidence that a stream of an unknown protocol is HTTP/2: it has the usual
 * size, is of a client's stream, and is empty only where that is not a mistake. In other protocols,
 * four bytes of length before a message of less than 256 bytes look like an empty frame.
 */
static __always_inline bool http2_typical(const u8 *head)
{
    u32 bytes = be32(head) >> 8, stream = be32(head + 5);
    u8 type = head[3], flags = head[4];
    if (bytes > HTTP2_USUAL_FRAME_BYTES || (stream && !(stream & 1)))
        return false;
    if (type == HTTP2_DATA)
        return bytes || flags & HTTP2_END_STREAM;
    return bytes || type == HTTP2_SETTINGS;
}

/* Whether a frame can begin like this. `strict`: rejects also what peers would have to ignore. */
static __always_inline bool http2_plausible(const u8 *head, bool strict)
{
    u32 bytes = be32(head) >> 8;
    u8 type = head[3], flags = head[4];
    u32 stream = be32(head + 5);
    if (stream >> 31)
        return !strict; /* a reserved bit */
    switch (type) {
    case HTTP2_DATA:
        return stream && !(strict && flags & ~0x9);
    case HTTP2_HEADERS:
        return stream && !(strict && flags & ~0x2d);
    case HTTP2_CONTINUATION:
        return stream && !(strict && flags & ~0x4);
    case HTTP2_PUSH_PROMISE:
        return stream && !(strict && flags & ~0xc);
    case HTTP2_PRIORITY:
        return stream && bytes == 5;
    case HTTP2_RST_STREAM:
        return stream && bytes == 4;
    case HTTP2_SETTINGS:
        return !stream && bytes % 6 == 0 && !(strict && (flags & ~0x1 || (flags && bytes)));
    case HTTP2_PING:
        return !stream && bytes == 8 && !(strict && flags & ~0x1);
    case HTTP2_GOAWAY:
        return !stream && bytes >= 8;
    case HTTP2_WINDOW_UPDATE:
        return bytes == 4;
    }
    return !strict;
}

/* Identifiers of settings: RFC 9113, 8441 and 9218, and gRPC's own. */
#define HTTP2_LAST_SETTING 9
#define HTTP2_GRPC_SETTINGS 0xfe

/* Whether a server may begin like this before its client has sent anything. Messages of other
 * protocols can begin like this, too: only the client's preface proves the protocol. */
static __always_inline bool http2_settings(const u8 *head, u32 have)
{
    u32 bytes = be32(head) >> 8;
    if (have < HTTP2_HEADER_BYTES || head[3] != HTTP2_SETTINGS || head[4] || bytes > 6 * 32 ||
        !http2_plausible(head, true))
        return false;
    if (!bytes || have < HTTP2_HEADER_BYTES + 2)
        return true;
    u8 high = head[HTTP2_HEADER_BYTES], low = head[HTTP2_HEADER_BYTES + 1];
    return high == HTTP2_GRPC_SETTINGS || (!high && low && low <= HTTP2_LAST_SETTING);
}

static __always_inline void http2_begin(struct framer *f)
{
    next_head(f, HTTP2_FRAME, HTTP2_HEADER_BYTES);
}

/* Streams opened one after the other in one direction have numbers less than this far apart. */
#define HTTP2_MOST_APART 256

/* Whether the frame may follow the earlier ones (RFC 9113, 6.2 and 5.1), as far as a few numbers
 * tell: unfinished headers continue in the next frame, and no data or headers follow END_STREAM. */
static __always_inline bool http2_in_order(struct framer *f)
{
    u8 type = f->at.head[3], flags = f->at.head[4];
    u32 stream = be32(f->at.head + 5);
    bool is_headers = type == HTTP2_HEADERS || type == HTTP2_PUSH_PROMISE;
    bool goes_on = type == HTTP2_CONTINUATION;
    if (goes_on != (f->trial.open_block != 0) || (goes_on && stream != f->trial.open_block))
        return false;
    if (stream && stream == f->trial.ended_stream && (type == HTTP2_DATA || is_headers))
        return false;
    if (is_headers || goes_on)
        f->trial.open_block = flags & HTTP2_END_HEADERS ? 0 : stream;
    if ((type == HTTP2_DATA || type == HTTP2_HEADERS) && flags & HTTP2_END_STREAM)
        f->trial.ended_stream = stream;
    if (f->trial.kind != TRIAL_FIRST)
        return true;
    if (!http2_typical(f->at.head))
        return false;
    if (type == HTTP2_HEADERS) {
        bool next =
            stream > f->trial.opened_stream && stream - f->trial.opened_stream < HTTP2_MOST_APART;
        f->trial.opened = next ? f->trial.opened + 1 : 1;
        f->trial.opened_stream = f->trial.headers_stream = stream;
        f->trial.evidence++;
    } else if (stream && stream == f->trial.headers_stream) {
        f->trial.evidence++;
    }
    return true;
}

/* Whether the frames of a call are certainly HTTP/2. Only HTTP/2 has headers followed by frames of
 * the same stream, or streams opened one after the other, perhaps by several calls. `whole`: the
 * frames are all of the call's bytes. */
static __always_inline bool http2_proven(struct framer *f, bool whole)
{
    return (f->trial.evidence >= 2 && (whole || f->trial.frames >= 3)) ||
           (whole && f->trial.opened >= 3);
}

/* `need` bytes are there. Returns whether they make sense. */
static __always_inline bool http2_head(struct framer *f)
{
    if (f->message.state == HTTP2_PREFACE) {
        http2_begin(f);
        return true;
    }
    if (f->message.state == HTTP2_ERROR) {
        /* RST_STREAM: the code. GOAWAY: the last stream, the code. */
        f->message.numbers[0] = be32(f->at.head);
        f->message.numbers[1] = be32(f->at.head + 4);
        u32 head = f->message.type == HTTP2_GOAWAY ? 8 : 4;
        tell_unit(f, f->message.total, f->message.type, f->message.flags, 0, true);
        f->at.skip = f->message.total - HTTP2_HEADER_BYTES - head;
        http2_begin(f);
        return true;
    }
    if (!http2_plausible(f->at.head, f->trial.kind))
        return false;
    if (f->trial.kind == TRIAL_SERVER && be32(f->at.head + 5))
        return false; /* a server can have no stream yet */
    if (f->trial.kind && !http2_in_order(f))
        return false;
    u32 bytes = be32(f->at.head) >> 8;
    f->message.unit = f->at.next - HTTP2_HEADER_BYTES;
    f->message.total = HTTP2_HEADER_BYTES + (u64)bytes;
    f->message.type = f->at.head[3];
    f->message.flags = f->at.head[4];
    f->message.id = be32(f->at.head + 5) & 0x7fffffff;
    f->trial.frames++;
    http2_begin(f);
    switch (f->message.type) {
    case HTTP2_HEADERS:
    case HTTP2_CONTINUATION:
    case HTTP2_PUSH_PROMISE:
        tell_unit(f, f->message.total, f->message.type, f->message.flags,
                  keep_methods && f->message.type == HTTP2_HEADERS ? UNIT_NAMED : 0, false);
        f->at.skip = bytes;
        if (keep_methods && bytes) {
            f->message.state = HTTP2_BLOCK;
            f->message.pieces_left =
                bytes < HTTP2_MOST_BLOCK_BYTES ? bytes : HTTP2_MOST_BLOCK_BYTES;
        }
        return true;
    case HTTP2_RST_STREAM:
        next_head(f, HTTP2_ERROR, 4);
        return true;
    case HTTP2_GOAWAY:
        next_head(f, HTTP2_ERROR, 8);
        return true;
    case HTTP2_DATA:
    case HTTP2_SETTINGS: /* the first unit recorded of a connection */
        tell_unit(f, f->message.total, f->message.type, f->message.flags, 0, false);
        break;
    }
    f->at.skip = bytes;
    return true;
}

/* Records `bytes` bytes at `f->at.buffer`, which are part of the payload of a frame with
 * headers. */
static __always_inline void http2_piece(struct framer *f, u32 bytes)
{
    struct rec_header_block *r = &f->block;
    if (bytes > PIECE_BYTES)
        return;
    r->hdr =
        (struct rec_hdr){.ts_ns = f->call.now_ns, .tid = f->call.tid, .kind = REC_HEADER_BLOCK};
    if (f->stream.side)
        r->hdr.flags |= PIECE_READER;
    if (f->stream.piece_gap)
        r->hdr.flags |= PIECE_AFTER_GAP;
    if (f->stream.piece_begin)
        r->hdr.flags |= PIECE_BEGIN;
    f->stream.piece_gap = f->stream.piece_begin = 0;
    r->channel = f->channel;
    r->offset = f->message.unit;
    r->id = f->message.id;
    r->sequence = f->stream.sequence++;
    r->frame_bytes = f->message.total - HTTP2_HEADER_BYTES;
    r->at = r->frame_bytes - f->at.skip;
    r->object_type = f->call.object_type;
    r->kind = f->message.type;
    r->flags = f->message.flags;
    r->piece_bytes = bytes;
    if (bpf_probe_read_user(r->piece, bytes, (void *)f->at.buffer) != 0)
        f->stream.piece_gap = 1;
    else
        output_record(r, __builtin_offsetof(struct rec_header_block, piece) + bytes,
                      f->call.now_ns);
}

/* HTTP/2 has no lines. */
static __always_inline bool http2_line(struct framer *f, u32 line_bytes)
{
    return false;
}

/* A client's preface reveals the protocol at once; find_begin() examines a server's first bytes. */
static __always_inline bool http2_recognized(struct framer *f, u32 first)
{
    if (!http2_preface(f->at.head, f->at.have))
        return false;
    f->stream.role = UNIT_FROM_CLIENT;
    return true;
}
