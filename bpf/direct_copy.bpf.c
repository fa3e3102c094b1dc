/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copies of payload between user memory and kernel memory: out of data that a socket has received
 * (net/core/datagram.c), and into data that a Unix or UDP socket sends (same file;
 * net/ipv4/ip_output.c). The functions that copy into pipes, files and TCP packets
 * (_copy_from_iter() and its like) lie in lib/, which is built without the code that tracers need
 * (lib/Makefile), so they cannot be hooked.
 */
#include "direct.h"

DIRECT(receive_copy, DIRECT_COPY, FUNCTION_COPY, DIRECT_NOTHING, DIRECT_RESULT)
DIRECT(send_copy, DIRECT_COPY, FUNCTION_COPY, DIRECT_ARG_4, DIRECT_NOTHING)
DIRECT(udp_copy, DIRECT_COPY, FUNCTION_COPY, DIRECT_ARG_4, DIRECT_NOTHING)
