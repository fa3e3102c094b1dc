/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* HTTP/1 (RFC 9112): a head of lines, then as much body as the head says. */
#pragma once
#include "framing.h"

enum http1_state {
    HTTP1_START, /* at the beginning of a message */
    HTTP1_FIELD,
    HTTP1_CHUNK, /* at the line with a chunk's length */
    HTTP1_TRAILER,
};

#define HTTP1_CHUNKED 1 /* f->message.flags */
#define HTTP1_LENGTH 2  /* f->message.total is the body's length */

static __always_inline u8 lower_case(u8 c)
{
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

/* "HTTP/1." */
static __always_inline bool http1_response(const u8 *head, u32 have)
{
    return have >= 12 && be32(head) == 0x48545450 && head[4] == '/' && head[5] == '1' &&
           head[6] == '.' && head[8] == ' ';
}

/* Offset of the target that follows a known method, in a head of at least four bytes; 0: it begins
 * with no known method. */
static __always_inline u32 http1_target(const u8 *head)
{
    switch (be32(head)) {
    case 0x47455420: /* "GET " */
    case 0x50555420: /* "PUT " */
        return 4;
    case 0x504f5354: /* "POST" */
    case 0x48454144: /* "HEAD" */
        return 5;
    case 0x50415443: /* "PATC" */
    case 0x54524143: /* "TRAC" */
        return 6;
    case 0x44454c45: /* "DELE" */
        return 7;
    case 0x4f505449: /* "OPTI" */
        return 8;
    }
    return 0;
}

/* A known method, a blank, and what can be a target. */
static __always_inline bool http1_request(const u8 *head, u32 have)
{
    u32 at = have < 14 ? 0 : http1_target(head);
    if (!at)
        return false;
    u8 target = head[at];
    return head[at - 1] == ' ' && (target == '/' || target == '*' || target == 'h');
}

/* Whether the bytes may be the beginning of a request or response, of a call that moved no more
 * than these bytes. */
static __always_inline bool http1_may_begin(const u8 *head, u32 have)
{
    if (have < 4 || have >= 14)
        return false;
    return http1_target(head) || be32(head) == 0x48545450; /* "HTTP" */
}

static __always_inline void http1_begin(struct framer *f)
{
    next_line(f, HTTP1_START);
    f->message.line_bytes = 0;
}

/* Reads the number to the base `base` in the head, from `at` on; -1: there is none. Global, so that
 * the verifier checks it only once. */
__noinline s64 http1_number(struct framer *f, u32 at, u32 base)
{
    if (!f)
        return -1;
    const u8 *head = f->at.head;
    at &= HEAD_BYTES - 1;
    s64 number = 0;
    bool any = false;
    for (u32 i = 0; i < 15; i++) {
        if (at + i >= HEAD_BYTES)
            break;
        u8 c = lower_case(head[(at + i) & 31]);
        if (c == ' ' && !any)
            continue;
        u8 digit = c - '0';
        if (digit > 9 && base == 16 && c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        if (digit >= base)
            break;
        number = number * base + digit;
        any = true;
    }
    return any ? number : -1;
}

static __always_inline void http1_field(struct framer *f)
{
    const u8 *h = f->at.head;
    /* "content-length:", "transfer-encoding:" */
    u32 first = be32(h) | 0x20202020;
    if (first == 0x636f6e74 && (be32(h + 4) | 0x20202020) == 0x656e742d &&
        (be32(h + 8) | 0x20202020) == 0x6c656e67 && lower_case(h[12]) == 't' &&
        lower_case(h[13]) == 'h' && h[14] == ':') {
        s64 length = http1_number(f, 15, 10);
        if (length >= 0) {
            f->message.total = length;
            f->message.flags |= HTTP1_LENGTH;
        }
    } else if (first == 0x7472616e && (be32(h + 4) | 0x20202020) == 0x73666572 && h[8] == '-' &&
               h[17] == ':') {
        /* Chunked is the only coding used with messages of unknown length. */
        f->message.flags |= HTTP1_CHUNKED;
    }
}

static __always_inline void http1_end_of_head(struct framer *f)
{
    bool response = f->message.type == UNIT_RESPONSE;
    u32 status = f->message.numbers[0];
    bool interim = response && status < 200 && status != 101;
    bool bodiless = interim || (response && (status == 204 || status == 304));
    u8 type = interim ? UNIT_ASIDE : f->message.type, flags = UNIT_LAST, state = HTTP1_START;
    u64 bytes = f->at.next - f->message.unit;
    if (response)
        f->message.numbers[1] = bytes;
    if (bodiless) {
    } else if (f->message.flags & HTTP1_CHUNKED) {
        flags = 0;
        state = HTTP1_CHUNK;
    } else if (f->message.flags & HTTP1_LENGTH) {
        f->at.skip = f->message.total;
        bytes += f->message.total;
    } else if (response) {
        flags = UNIT_OPEN;
        f->at.skip = ~0ULL >> 1;
    }
    u8 told = keep_methods && !response ? UNIT_NAMED : 0;
    tell_unit(f, bytes, type, flags, told, response);
    if (told && !f->trial.kind)
        tell_line(f);
    http1_begin(f);
    f->message.state = state;
}

/* A line of `line_bytes` bytes has ended; f->at.head has its beginning. */
static __always_inline bool http1_line(struct framer *f, u64 line_bytes)
{
    bool blank = line_bytes <= 2;
    s64 number;
    switch (f->message.state) {
    case HTTP1_START:
        if (blank)
            return true; /* allowed before a message */
        if (http1_response(f->at.head, f->at.have)) {
            f->message.type = UNIT_RESPONSE;
            f->stream.role = UNIT_FROM_SERVER;
            number = http1_number(f, 9, 10);
            if (number < 100 || number > 999)
                return false;
            f->message.numbers[0] = number;
        } else if (http1_request(f->at.head, f->at.have)) {
            f->message.type = UNIT_REQUEST;
            f->stream.role = UNIT_FROM_CLIENT;
            f->message.numbers[0] = be32(f->at.head);
            f->message.numbers[1] = 0;
        } else {
            return false;
        }
        if (f->trial.kind == TRIAL_LINE) { /* it is HTTP/1 */
            f->trial.kind = TRIAL_NONE;
            f->stream.followed = 1;
        }
        f->message.unit = f->at.next - line_bytes;
        f->message.total = 0;
        f->message.flags = 0;
        f->trial.frames++;
        next_line(f, HTTP1_FIELD);
        return true;
    case HTTP1_FIELD:
        if (!blank) {
            http1_field(f);
            next_line(f, HTTP1_FIELD);
        } else {
            http1_end_of_head(f);
        }
        return true;
    case HTTP1_CHUNK:
        number = http1_number(f, 0, 16);
        if (number < 0)
            return false;
        f->message.unit = f->at.next - line_bytes;
        if (number == 0) {
            next_line(f, HTTP1_TRAILER);
            return true;
        }
        f->at.skip = number + 2;
        tell_unit(f, line_bytes + f->at.skip, UNIT_MORE, 0, 0, false);
        next_line(f, HTTP1_CHUNK);
        return true;
    case HTTP1_TRAILER:
        if (!blank) {
            next_line(f, HTTP1_TRAILER);
            return true;
        }
        tell_unit(f, f->at.next - f->message.unit, UNIT_MORE, UNIT_LAST, 0, false);
        http1_begin(f);
        return true;
    }
    return false;
}

/* HTTP/1 has only lines. */
static __always_inline bool http1_head(struct framer *f)
{
    return false;
}

/* The first line tells which side is the client. */
static __always_inline bool http1_recognized(struct framer *f, u32 first)
{
    return http1_request(f->at.head, f->at.have) || http1_response(f->at.head, f->at.have);
}
