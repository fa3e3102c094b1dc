/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * RESP, which Redis speaks: a command is an array of strings; an answer is one value, whose
 * aggregates hold others. Values begin with a line; strings say in it how many bytes follow.
 */
#pragma once
#include "framing.h"

enum resp_state {
    RESP_VALUE, /* at the begin of a message */
    RESP_MORE,  /* at a value inside one: f->total of them are to come */
};

/* A number of up to nine digits after the line's first byte; -1: none. A line's end follows. */
static __always_inline s64 resp_number(const u8 *head, u32 have)
{
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

static __always_inline void resp_begin(struct framer *f)
{
    next_line(f, RESP_VALUE);
}

static __always_inline bool resp_line(struct framer *f, u32 line_bytes)
{
    u8 first = f->head[0];
    bool top = f->state == RESP_VALUE, command = f->role == UNIT_FROM_CLIENT;
    if (top) {
        if (command && first != '*')
            return false; /* an inline command: nobody pipelines those */
        f->unit = f->next - line_bytes;
        f->total = 1;
        f->flags = first == '-' || first == '!' ? UNIT_ERROR : 0;
        f->type = command ? UNIT_REQUEST : first == '>' ? UNIT_ASIDE : UNIT_RESPONSE;
    }
    f->total--;
    f->skip = 0;
    s64 number = 0;
    switch (first) {
    case '$': /* strings */
    case '=':
    case '!':
        number = resp_number(f->head, f->have);
        if (number == -1)
            return false;
        f->skip = number < 0 ? 0 : number + 2;
        break;
    case '*': /* aggregates */
    case '~':
    case '>':
        number = resp_number(f->head, f->have);
        if (number == -1)
            return false;
        f->total += number < 0 ? 0 : number;
        break;
    case '%':
    case '|': /* comes before a value */
        number = resp_number(f->head, f->have);
        if (number < 0)
            return false;
        f->total += 2 * number + (first == '|');
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
    if (f->total == 0) {
        f->frames++;
        tell_unit(f, f->next - f->unit + f->skip, f->type, f->flags | UNIT_LAST, 0, false);
        resp_begin(f);
    } else {
        next_line(f, RESP_MORE);
    }
    return true;
}
