#define _GNU_SOURCE

#include "segment.h"

#include "clocks.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct segment *map_file(int fd)
{
    if (fd < 0)
        return NULL;
    void *memory = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int saved = errno;
    close(fd);
    errno = saved;
    return memory == MAP_FAILED ? NULL : memory;
}

struct segment *make_segment(const char *path, unsigned node, unsigned process, bool invalidates)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(struct segment)) < 0) {
        close(fd);
        return NULL;
    }
    struct segment *segment = map_file(fd);
    if (!segment)
        return NULL;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&segment->lock, &attributes);
    segment->node = node;
    segment->process = process;
    segment->invalidates = invalidates;
    return segment;
}

struct segment *open_segment(const char *path)
{
    return map_file(open(path, O_RDWR | O_CLOEXEC));
}

static void lock(struct segment *segment)
{
    /* The owner of the lock is dead; the other process will learn of it, and end as well. */
    if (pthread_mutex_lock(&segment->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&segment->lock);
}

static void unlock(struct segment *segment)
{
    pthread_mutex_unlock(&segment->lock);
}

bool same_object(const flex_oid *a, const flex_oid *b)
{
    return a->node == b->node && a->process == b->process && a->number == b->number;
}

static void set_object(struct object *object, const flex_state state, const flex_clock stamp)
{
    memcpy(object->state, state, sizeof(flex_state));
    memcpy(object->stamp, stamp, sizeof(flex_clock));
    object->valid = true;
}

static void get_object(const struct object *object, flex_copy *copy)
{
    copy->status = FLEX_OK;
    memcpy(copy->state, object->state, sizeof(flex_state));
    memcpy(copy->stamp, object->stamp, sizeof(flex_clock));
}

/* Learns of a write.  Called with the lock held. */
static void learn(struct segment *segment, const flex_clock stamp)
{
    merge(segment->clock, stamp);
    for (unsigned i = 0; i < segment->copy_count && segment->invalidates; i++)
        if (is_before(segment->copies[i].stamp, stamp))
            segment->copies[i].valid = false;
}

flex_status create_object(struct segment *segment, const flex_state state, flex_oid *oid)
{
    flex_status status = FLEX_FULL;
    lock(segment);
    if (segment->owned_count < MOST_OWNED) {
        struct object *object = &segment->owned[segment->owned_count];
        object->oid = (flex_oid){segment->node, segment->process, segment->owned_count++};
        *oid = object->oid;
        segment->clock[segment->process]++;
        set_object(object, state, segment->clock);
        status = FLEX_OK;
    }
    unlock(segment);
    return status;
}

flex_status write_owned(struct segment *segment, unsigned number, const flex_state state)
{
    flex_status status = FLEX_NOT_FOUND;
    lock(segment);
    if (number < segment->owned_count) {
        segment->clock[segment->process]++;
        set_object(&segment->owned[number], state, segment->clock);
        status = FLEX_OK;
    }
    unlock(segment);
    return status;
}

flex_status give_object(struct segment *segment, unsigned number, flex_copy *copy)
{
    flex_status status = FLEX_NOT_FOUND;
    lock(segment);
    if (number < segment->owned_count) {
        get_object(&segment->owned[number], copy);
        status = FLEX_OK;
    }
    unlock(segment);
    return status;
}

flex_status take_write(struct segment *segment, const flex_update *update, flex_copy *copy)
{
    flex_status status = FLEX_NOT_FOUND;
    lock(segment);
    if (update->oid.number < segment->owned_count) {
        struct object *object = &segment->owned[update->oid.number];
        segment->arrivals++;
        learn(segment, update->clock);
        /* The merged clock: after every earlier write of the object. */
        set_object(object, update->state, segment->clock);
        get_object(object, copy);
        status = FLEX_OK;
    }
    unlock(segment);
    return status;
}

flex_status find_slot(struct segment *segment, const flex_oid *oid, unsigned *slot)
{
    flex_status status = FLEX_OK;
    unsigned i = 0;
    lock(segment);
    while (i < segment->copy_count && !same_object(&segment->copies[i].oid, oid))
        i++;
    if (i == MOST_COPIES) {
        status = FLEX_FULL;
    } else if (i == segment->copy_count) {
        segment->copies[i] = (struct object){.oid = *oid};
        segment->copy_count++;
    }
    unlock(segment);
    *slot = i;
    return status;
}

bool install_copy(struct segment *segment, unsigned slot, const flex_copy *fetched,
                  uint64_t arrivals_before)
{
    lock(segment);
    bool in_time = segment->arrivals == arrivals_before || !segment->invalidates;
    if (in_time) {
        learn(segment, fetched->stamp);
        set_object(&segment->copies[slot], fetched->state, fetched->stamp);
    }
    unlock(segment);
    return in_time;
}

void learn_only(struct segment *segment, unsigned slot, const flex_copy *fetched)
{
    lock(segment);
    learn(segment, fetched->stamp);
    segment->copies[slot].valid = false;
    unlock(segment);
}

uint64_t arrivals_of(struct segment *segment)
{
    lock(segment);
    uint64_t arrivals = segment->arrivals;
    unlock(segment);
    return arrivals;
}

bool read_owned(struct segment *segment, unsigned number, flex_state state)
{
    lock(segment);
    bool found = number < segment->owned_count;
    if (found)
        memcpy(state, segment->owned[number].state, sizeof(flex_state));
    unlock(segment);
    return found;
}

bool read_copy(struct segment *segment, unsigned slot, flex_state state)
{
    lock(segment);
    bool valid = segment->copies[slot].valid;
    if (valid)
        memcpy(state, segment->copies[slot].state, sizeof(flex_state));
    unlock(segment);
    return valid;
}

void invalidate_copy(struct segment *segment, unsigned slot)
{
    lock(segment);
    segment->copies[slot].valid = false;
    unlock(segment);
}

void begin_write(struct segment *segment, flex_clock clock)
{
    lock(segment);
    segment->clock[segment->process]++;
    memcpy(clock, segment->clock, sizeof(flex_clock));
    unlock(segment);
}
