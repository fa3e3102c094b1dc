/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the code that counts a channel's bytes tells the framer about them. */
#pragma once

/* In `framed`: the connection is not the one that its framer knows. */
#define FRAMED_ANEW 1

/* Whether the framer looks for frames in the bytes. */
enum look {
    LOOK_AWAY,
    LOOK,
    LOOK_ANEW, /* they are the first bytes of a connection that the framer does not know */
};
