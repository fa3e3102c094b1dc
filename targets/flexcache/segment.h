/*
 * The objects of a client, in memory that it shares with its process cacher: those it has created,
 * and copies of others'.  Here are the rules that keep the copies causally consistent:
 *
 * Each write of an object gets a stamp, the clock of who wrote it, merged with that of the object's
 * home; the stamps of an object only grow.  Who learns of a write merges its stamp into his own
 * clock, and from then on has no use for copies whose stamp is before it: they may have been
 * overwritten by something that the writer knew.  So they are invalidated, which needs no message.
 * To be used again, an invalid copy has to be fetched anew.
 */
#ifndef SEGMENT_H
#define SEGMENT_H

#include "flex.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define MOST_OWNED 16384
#define MOST_COPIES 1024

struct object {
    flex_oid oid;
    bool valid;
    flex_state state;
    flex_clock stamp;
};

struct segment {
    pthread_mutex_t lock; /* of all below */
    unsigned node, process;
    bool invalidates;  /* false breaks the rules, for the checker to find */
    uint64_t arrivals; /* of others' writes */
    flex_clock clock;
    unsigned owned_count, copy_count;
    struct object owned[MOST_OWNED];
    struct object copies[MOST_COPIES];
};

/* Makes the file, which must not exist, or opens it; NULL with errno set on failure. */
struct segment *make_segment(const char *path, unsigned node, unsigned process, bool invalidates);
struct segment *open_segment(const char *path);

/* At the object's home: the process that created it.  Both are writes. */
flex_status create_object(struct segment *segment, const flex_state state, flex_oid *oid);
flex_status write_owned(struct segment *segment, unsigned number, const flex_state state);

/* At home, for others: the object, after having taken another's write in the second case. */
flex_status give_object(struct segment *segment, unsigned number, flex_copy *copy);
flex_status take_write(struct segment *segment, const flex_update *update, flex_copy *copy);

/* The slot of a copy of an object, for which there may be none yet; it is not valid then. */
flex_status find_slot(struct segment *segment, const flex_oid *oid, unsigned *slot);

/*
 * Makes what was fetched the copy in a slot.  False, and nothing is done, if the fetching began
 * when there had been fewer arrivals: what has arrived meanwhile may know of a later state.
 */
bool install_copy(struct segment *segment, unsigned slot, const flex_copy *fetched,
                  uint64_t arrivals_before);

/* For such a case: takes notice of what was fetched, whose copy must not be used. */
void learn_only(struct segment *segment, unsigned slot, const flex_copy *fetched);

uint64_t arrivals_of(struct segment *segment);

/* Reads an owned object, or a copy if it is valid. */
bool read_owned(struct segment *segment, unsigned number, flex_state state);
bool read_copy(struct segment *segment, unsigned slot, flex_state state);

void invalidate_copy(struct segment *segment, unsigned slot);

/* The clock that a write to another's object carries: it counts the write. */
void begin_write(struct segment *segment, flex_clock clock);

bool same_object(const flex_oid *a, const flex_oid *b);

#endif
