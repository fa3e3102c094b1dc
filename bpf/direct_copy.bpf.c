/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copies of payload between user memory and the kernel's: out of what a socket has received
 * (net/core/datagram.c), and into what a Unix or UDP socket sends (the same; net/ipv4/ip_output.c).
 * What copies into pipes, files and TCP's packets (_copy_from_iter() and its like) lies in lib/,
 * which is built without what tracers need (lib/Makefile), and may not be hooked.
 */
#include "direct.h"

DIRECT(receive_copy, DIRECT_COPY, FUNCTION_COPY, DIRECT_NOTHING, DIRECT_RESULT)
DIRECT(send_copy, DIRECT_COPY, FUNCTION_COPY, DIRECT_ARG_4, DIRECT_NOTHING)
DIRECT(udp_copy, DIRECT_COPY, FUNCTION_COPY, DIRECT_ARG_4, DIRECT_NOTHING)
