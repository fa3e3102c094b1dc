/* kit_serve: the server's side. */
#ifndef KIT_SERVE_H
#define KIT_SERVE_H

#include "server_kit.h"

/* Serves all clients, with as many threads as the case has, until the last has left. */
void kit_serve(const struct kit_case *injected, const struct channel *channels, unsigned clients,
               unsigned requests, struct kit_row *rows);

#endif
