/* kit_log: the log's columns. */
#ifndef KIT_LOG_H
#define KIT_LOG_H

#include "server_kit.h"

#include <stdio.h>

/* Writes and closes it: requests rows of each client, whose processes are pids. */
void kit_log(FILE *log, const char *path, const struct kit_case *injected,
             const struct kit_row *rows, unsigned clients, const int *pids, unsigned requests);

#endif
