/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What who counts a channel's bytes tells the framer of them. */
#pragma once

/* In `framed`: the connection is another one than its framer knows. */
#define FRAMED_ANEW 1

/* Whether the bytes are looked at for the frames in them. */
enum look {
    LOOK_AWAY,
    LOOK,
    LOOK_ANEW, /* they are the first of another connection than the framer knows */
};
