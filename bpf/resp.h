/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * RESP, the protocol of Redis: a command is an array of strings, or one line of words ("inline").
 * An answer is one value; aggregates hold other values. A value begins with a line; the line of a
 * string says how many bytes follow.
 *
 * The first word of a command is its name. If the command is a container of other commands, the
 * second word is part of the name. Nothing else of a command is kept, nor words that cannot be a
 * name.
 */
#pragma once
#include "framing.h"

enum resp_state {
    RESP_VALUE, /* at the beginning of a message */
    RESP_MORE,  /* at a value inside a message: f->message.total values are to come */
    RESP_WORD,  /* at a word that may be part of the command's name */
};

/* A word and the end of its line have to fit into a head. */
#define RESP_MOST_WORD_BYTES (HEAD_BYTES - 2)
/* "PING\r\n" */
#define RESP_PING_BYTES 6

/* Reads a number of up to ten digits after the line's first byte, up to the line's end; -1: there
 * is none. Global, so that the verifier checks it only once. */
__noinline s64 resp_number(struct framer *f)
{
    if (!f)
        return -1;
    const u8 *head = f->at.head;
    u32 have = f->at.have;
    s64 number = 0;
    u32 i = 1;
    if (head[1] == '-')
        return head[2] == '1' ? -2 : -1; /* -2: null */
    for (; i < 11; i++) {
        u8 digit = head[i] - '0';
        if (digit > 9)
            break;
        number = number * 10 + digit;
    }
    return i == 1 || i >= have || head[i & 31] != '\r' ? -1 : number;
}

/* "*N\r\n$" */
static __always_inline bool resp_command(const u8 *head, u32 have)
{
    if (have < 5 || head[0] != '*' || head[1] < '1' || head[1] > '9')
        return false;
    for (u32 i = 2; i < 8; i++) {
        if (head[i] == '\r')
            return have > i + 2 && head[i + 1] == '\n' && head[i + 2] == '$';
        if ((u8)(head[i] - '0') > 9)
            return false;
    }
    return false;
}

/* Used only for the first words of a connection: other protocols know it, too. */
static __always_inline bool resp_ping(const u8 *head, u32 have)
{
    return have >= RESP_PING_BYTES && (be32(head) & 0xdfdfdfdf) == 0x50494e47 && head[4] == '\r' &&
           head[5] == '\n';
}

/* Letters, digits, '-', '.' and '_'. */
static __always_inline bool resp_of_name(u8 c)
{
    u64 among = c < 64 ? 0x03ff600000000000 : 0x07fffffe87fffffe;
    return c < 128 && among >> (c & 63) & 1;
}

/* Copies the word at head[from] behind the known part of the name, whose length stays the same.
 * Returns the word's end. Global, so that the verifier checks it only once. */
__noinline u32 resp_copy_word(struct framer *f, u32 from)
{
    if (!f)
        return 0;
    u32 to = f->message.line_bytes, i = 0;
    if (to)
        f->line.line[to++ & (PIECE_BYTES - 1)] = ' ';
    for (; i < RESP_MOST_WORD_BYTES; i++) {
        u8 c = f->at.head[(from + i) & (2 * HEAD_BYTES - 1)];
        if (!resp_of_name(c))
            break;
        f->line.line[(to + i) & (PIECE_BYTES - 1)] = c;
    }
    return from + i;
}

/* Adds the word just copied, of `bytes` bytes, to the name. */
static __always_inline void resp_keep_word(struct framer *f, u32 bytes)
{
    f->message.line_bytes += bytes + (f->message.line_bytes != 0);
}

#define RESP_NAME(a, b, c, d, e, f, g, h)                                                          \
    ((u64)(a) << 56 | (u64)(b) << 48 | (u64)(c) << 40 | (u64)(d) << 32 | (u64)(e) << 24 |          \
     (u64)(f) << 16 | (u64)(g) << 8 | (u64)(h))

/* Whether the word of `bytes` bytes at the beginning of the head names a container of commands. */
static __always_inline bool resp_contains_others(const u8 *head, u32 bytes)
{
    if (bytes < 3 || bytes > 8)
        return false;
    u64 word = ((u64)be32(head) << 32 | be32(head + 4)) & 0xdfdfdfdfdfdfdfdf; /* upper case */
    u32 beyond = 64 - 8 * bytes;
    switch (word >> beyond << beyond) {
    case RESP_NAME('A', 'C', 'L', 0, 0, 0, 0, 0):
    case RESP_NAME('C', 'L', 'I', 'E', 'N', 'T', 0, 0):
    case RESP_NAME('C', 'L', 'U', 'S', 'T', 'E', 'R', 0):
    case RESP_NAME('C', 'O', 'M', 'M', 'A', 'N', 'D', 0):
    case RESP_NAME('C', 'O', 'N', 'F', 'I', 'G', 0, 0):
    case RESP_NAME('F', 'U', 'N', 'C', 'T', 'I', 'O', 'N'):
    case RESP_NAME('L', 'A', 'T', 'E', 'N', 'C', 'Y', 0):
    case RESP_NAME('M', 'E', 'M', 'O', 'R', 'Y', 0, 0):
    case RESP_NAME('M', 'O', 'D', 'U', 'L', 'E', 0, 0):
    case RESP_NAME('O', 'B', 'J', 'E', 'C', 'T', 0, 0):
    case RESP_NAME('P', 'U', 'B', 'S', 'U', 'B', 0, 0):
    case RESP_NAME('S', 'C', 'R', 'I', 'P', 'T', 0, 0):
    case RESP_NAME('S', 'E', 'N', 'T', 'I', 'N', 'E', 'L'):
    case RESP_NAME('S', 'L', 'O', 'W', 'L', 'O', 'G', 0):
    case RESP_NAME('X', 'G', 'R', 'O', 'U', 'P', 0, 0):
    case RESP_NAME('X', 'I', 'N', 'F', 'O', 0, 0, 0):
        return true;
    }
    return false;
}

static __always_inline void resp_begin(struct framer *f)
{
    next_line(f, RESP_VALUE);
    f->message.line_bytes = 0;
    f->message.words = 0;
}

/* A value has ended, except for its last `f->at.skip` bytes, which are skipped. */
static __always_inline void resp_go_on(struct framer *f)
{
    if (f->message.total) {
        next_line(f, RESP_MORE);
        return;
    }
    f->trial.frames++;
    u8 told = f->message.line_bytes ? UNIT_NAMED : 0;
    tell_unit(f, f->at.next - f->message.unit + f->at.skip, f->message.type,
              f->message.flags | UNIT_LAST, told, false);
    if (told)
        tell_line(f);
    resp_begin(f);
}

/* A word that may be part of the command's name is there. */
static __always_inline bool resp_head(struct framer *f)
{
    u32 bytes = f->at.need - 2;
    f->message.words--;
    if (resp_copy_word(f, 0) != bytes) {
        f->message.words = 0;
    } else {
        if (!f->message.line_bytes && resp_contains_others(f->at.head, bytes))
            f->message.words = 1;
        resp_keep_word(f, bytes);
    }
    resp_go_on(f);
    return true;
}

static __always_inline bool resp_ends_word(u8 c)
{
    return c == ' ' || c == '\r' || c == '\n';
}

/* An inline command's line is there. */
static __always_inline bool resp_inline(struct framer *f, u32 line_bytes)
{
    if (line_bytes <= 2) {
        resp_begin(f); /* an empty one has no answer */
        return true;
    }
    u32 end = resp_copy_word(f, 0);
    if (!end)
        return false;
    f->message.unit = f->at.next - line_bytes;
    f->message.type = UNIT_REQUEST;
    f->message.flags = 0;
    f->message.total = f->at.skip = 0;
    if (keep_methods && resp_ends_word(f->at.head[end & (HEAD_BYTES - 1)])) {
        bool contains_others = resp_contains_others(f->at.head, end);
        resp_keep_word(f, end);
        if (contains_others) {
            u32 from = end + 1, second_end = resp_copy_word(f, from);
            if (second_end != from && resp_ends_word(f->at.head[second_end & (2 * HEAD_BYTES - 1)]))
                resp_keep_word(f, second_end - from);
        }
    }
    resp_go_on(f);
    return true;
}

static __always_inline bool resp_line(struct framer *f, u32 line_bytes)
{
    u8 first = f->at.head[0];
    bool top = f->message.state == RESP_VALUE, command = f->stream.role == UNIT_FROM_CLIENT;
    if (top) {
        if (command &&
            first != '*') /* too much looks like a line of words to recognize RESP by it */
            return !f->trial.kind && resp_inline(f, line_bytes);
        f->message.words = command && keep_methods && !f->trial.kind;
        f->message.unit = f->at.next - line_bytes;
        f->message.total = 1;
        f->message.flags = first == '-' || first == '!' ? UNIT_ERROR : 0;
        f->message.type = command ? UNIT_REQUEST : first == '>' ? UNIT_ASIDE : UNIT_RESPONSE;
    }
    f->message.total--;
    f->at.skip = 0;
    s64 number = 0;
    switch (first) {
    case '$': /* strings */
    case '=':
    case '!':
        number = resp_number(f);
        if (number == -1)
            return false;
        if (f->message.words && number > 0 && number <= RESP_MOST_WORD_BYTES) {
            next_head(f, RESP_WORD, number + 2);
            return true;
        }
        f->message.words = 0;
        f->at.skip = number < 0 ? 0 : number + 2;
        break;
    case '*': /* aggregates */
    case '~':
    case '>':
        number = resp_number(f);
        if (number == -1)
            return false;
        f->message.total += number < 0 ? 0 : number;
        break;
    case '%':
    case '|': /* comes before a value */
        number = resp_number(f);
        if (number < 0)
            return false;
        f->message.total += 2 * number + (first == '|');
        break;
    case '+':
    case '-':
    case ':':
    case '_':
    case '#':
    case ',':
    case '(':
        break;
    default:
        return false;
    }
    resp_go_on(f);
    return true;
}

static __always_inline bool resp_recognized(struct framer *f, u32 first)
{
    if (!resp_command(f->at.head, f->at.have) && !(first && resp_ping(f->at.head, f->at.have)))
        return false;
    f->stream.role = UNIT_FROM_CLIENT;
    return true;
}
