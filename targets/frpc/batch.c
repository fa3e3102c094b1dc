#include "batch.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

void batch_clear(struct batch *batch)
{
    batch->length = 0;
    batch->count = 0;
}

bool batch_add(struct batch *batch, const char *text, size_t length)
{
    uint32_t header = htonl((uint32_t)length);
    size_t room = sizeof batch->bytes - batch->length;
    if (room < sizeof header || room - sizeof header < length)
        return false;
    char *end = batch->bytes + batch->length;
    memcpy(end, &header, sizeof header);
    memcpy(end + sizeof header, text, length);
    batch->length += sizeof header + length;
    batch->count++;
    return true;
}

bool batch_next(const struct batch *batch, size_t *position, char *text, size_t capacity,
                size_t *length)
{
    uint32_t header;
    size_t left = batch->length - *position;
    if (left < sizeof header)
        return false;
    memcpy(&header, batch->bytes + *position, sizeof header);
    size_t announced = ntohl(header);
    if (announced > left - sizeof header || announced >= capacity)
        return false;
    memcpy(text, batch->bytes + *position + sizeof header, announced);
    text[announced] = '\0';
    *position += sizeof header + announced;
    *length = announced;
    return true;
}
