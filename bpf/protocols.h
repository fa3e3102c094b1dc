/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The protocols that are followed inside byte streams. Each has a header and a line in the table.
 *
 * The header has four functions whose names begin with the protocol's name. recognized(f, first)
 * returns whether a message begins with the call's first bytes, in `f->at.head`, and sets the role
 * if they reveal it; `first`: no bytes came before them. begin(f) sets what is to be read at the
 * beginning of a message. head(f) is called when `f->at.need` bytes are in `f->at.head`, line(f,
 * line_bytes) at the end of a line whose beginning is in `f->at.head`: they set what comes next, or
 * return that the bytes make no sense.
 */
#pragma once
#include "http1.h"
#include "http2.h"
#include "oncrpc.h"
#include "resp.h"
#include "tls.h"

/* Number, name, and whether an answer's first bytes reveal the protocol, too. Protocols are tried
 * in this order. */
#define PROTOCOLS(EACH)                                                                            \
    EACH(PROTOCOL_HTTP2, http2, false)                                                             \
    EACH(PROTOCOL_HTTP1, http1, true)                                                              \
    EACH(PROTOCOL_ONCRPC, oncrpc, false)                                                           \
    EACH(PROTOCOL_RESP, resp, false)                                                               \
    EACH(PROTOCOL_TLS, tls, true)

#define CHECK_NUMBER(number, name, answers_tell)                                                   \
    _Static_assert(EXPECTED_PROTOCOL(number) == (number), "a framer keeps it in three bits");
PROTOCOLS(CHECK_NUMBER)

static __always_inline bool begin_message(struct framer *f)
{
#define BEGIN(number, name, answers_tell)                                                          \
    case number:                                                                                   \
        name##_begin(f);                                                                           \
        return true;
    switch (f->stream.protocol) {
        PROTOCOLS(BEGIN)
    }
    return false;
}

static __always_inline bool head_is_there(struct framer *f)
{
#define HEAD(number, name, answers_tell)                                                           \
    case number:                                                                                   \
        return name##_head(f);
    switch (f->stream.protocol) {
        PROTOCOLS(HEAD)
    }
    return false;
}

static __always_inline bool line_is_there(struct framer *f, u32 line_bytes)
{
#define LINE(number, name, answers_tell)                                                           \
    case number:                                                                                   \
        return name##_line(f, line_bytes);
    switch (f->stream.protocol) {
        PROTOCOLS(LINE)
    }
    return false;
}

/* Returns the protocol that the call's first bytes, in `head`, belong to. `first`: no bytes came
 * before them. Global, so that the verifier checks it only once. */
__noinline int protocol_of(struct framer *f, u32 first)
{
    if (!f)
        return PROTOCOL_UNKNOWN;
#define RECOGNIZE(number, name, answers_tell)                                                      \
    if (name##_recognized(f, first))                                                               \
        return number;
    PROTOCOLS(RECOGNIZE)
    return PROTOCOL_UNKNOWN;
}

static __always_inline bool answers_tell(u8 protocol)
{
#define ANSWERS_TELL(number, name, answers_tell)                                                   \
    case number:                                                                                   \
        return answers_tell;
    switch (protocol) {
        PROTOCOLS(ANSWERS_TELL)
    }
    return false;
}
