#include <stdlib.h>
#include <string.h>

#include "echo.h"

int ask(int connection, int requests, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    int answered = 0;
    for (int request = 0; request < requests; request++) {
        memset(text, 'a' + request % 26, bytes);
        char *echo;
        size_t echo_bytes;
        if (!send_message(connection, text, bytes) ||
            !receive_message(connection, &echo, &echo_bytes))
            break;
        answered += echo_bytes == bytes && memcmp(echo, text, bytes) == 0;
        free(echo);
    }
    free(text);
    return answered;
}
