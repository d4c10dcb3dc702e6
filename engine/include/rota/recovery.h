/* The recovery table: what an open does with the end of the log that it found.
 *
 * What holds:
 *  1. What was found is seven yes-or-no conditions; each row names those that it needs and those that it excludes.
 *  2. For each of the 128 combinations exactly one row matches; tests/unit/test_recovery_table.py tries them all.
 *  3. A refusal changes no file: it names the file and the offset, and repair is the user's decision.
 *  4. Ids go on where they ended only if the log says that nothing followed; else they jump, since ids that were seen
 *     may have been lost with their commits.
 *
 *     E is the end: the position after the last commit that fits; D the highest position proven durable.
 */
#ifndef ROTA_RECOVERY_H
#define ROTA_RECOVERY_H

#include <stddef.h>
#include <stdint.h>

#include "rota/atomics.h"

enum rota_recovery_condition {
    ROTA_FOUND_NOTHING = 1,          /* no commit was accepted and the manifest lists no epoch */
    ROTA_FOUND_CLOSE = 2,            /* the last commit is the MARK of a clean close, in the newest epoch */
    ROTA_FOUND_REST = 4,             /* behind E lie bytes of this epoch: a commit that does not check or not fit */
    ROTA_FOUND_PROOF = 8,            /* some commit of a known epoch has a durable_lsn above E */
    ROTA_FOUND_CHECKPOINT_ABOVE = 16, /* the checkpoint of the manifest ends above E */
    ROTA_FOUND_EPOCH_ABOVE = 32,     /* the newest epoch of the manifest starts above E */
    ROTA_FOUND_REACHED_ABOVE = 64,   /* the manifest says that a later turn of the log held durable commits */
    ROTA_FOUND_COMBINATIONS = 128
};

enum rota_recovery_action {
    ROTA_RECOVERY_GO_ON = 0, /* append at E in a new epoch, ids go on */
    ROTA_RECOVERY_JUMP = 1,  /* append at E in a new epoch, ids jump */
    ROTA_RECOVERY_REFUSE = 2 /* corrupt below D */
};

typedef struct rota_recovery_case {
    uint32_t number;
    uint32_t needs;    /* conditions that must hold */
    uint32_t excludes; /* conditions that must not */
    uint32_t action;
    const char *name;
    const char *meaning;
} rota_recovery_case;

#define ROTA_RECOVERY_REFUSALS                                                                                       \
    (ROTA_FOUND_PROOF | ROTA_FOUND_CHECKPOINT_ABOVE | ROTA_FOUND_EPOCH_ABOVE | ROTA_FOUND_REACHED_ABOVE)

static const rota_recovery_case rota_recovery_cases[] = {
    {1, ROTA_FOUND_NOTHING, ROTA_RECOVERY_REFUSALS | ROTA_FOUND_REST, ROTA_RECOVERY_GO_ON, "new",
     "a repository that was never written to"},
    {2, ROTA_FOUND_CLOSE, ROTA_RECOVERY_REFUSALS | ROTA_FOUND_REST | ROTA_FOUND_NOTHING, ROTA_RECOVERY_GO_ON, "closed",
     "the last process closed cleanly"},
    {3, 0, ROTA_RECOVERY_REFUSALS | ROTA_FOUND_REST | ROTA_FOUND_NOTHING | ROTA_FOUND_CLOSE, ROTA_RECOVERY_JUMP,
     "ended", "the log ends with a whole commit"},
    {4, ROTA_FOUND_REST, ROTA_RECOVERY_REFUSALS, ROTA_RECOVERY_JUMP, "torn",
     "what follows was never proven durable, and is cut"},
    {5, ROTA_FOUND_PROOF, ROTA_FOUND_CHECKPOINT_ABOVE | ROTA_FOUND_EPOCH_ABOVE | ROTA_FOUND_REACHED_ABOVE,
     ROTA_RECOVERY_REFUSE, "damaged",
     "a later commit proves that the log was durable beyond its readable end"},
    {6, ROTA_FOUND_CHECKPOINT_ABOVE, ROTA_FOUND_EPOCH_ABOVE, ROTA_RECOVERY_REFUSE, "checkpoint",
     "the log is damaged below the end of its checkpoint"},
    {7, ROTA_FOUND_EPOCH_ABOVE, 0, ROTA_RECOVERY_REFUSE, "epoch",
     "the log is damaged below the start of its newest epoch"},
    {8, ROTA_FOUND_REACHED_ABOVE, ROTA_FOUND_CHECKPOINT_ABOVE | ROTA_FOUND_EPOCH_ABOVE, ROTA_RECOVERY_REFUSE, "lost",
     "the manifest proves that the log went on, durably, in a segment that is lost or damaged"},
};

#define ROTA_RECOVERY_CASE_COUNT (sizeof rota_recovery_cases / sizeof rota_recovery_cases[0])

ROTA_INLINE int rota_recovery_matches(const rota_recovery_case *row, uint32_t found)
{
    return (found & row->needs) == row->needs && (found & row->excludes) == 0;
}

/* The row for what was found; there is always one. */
ROTA_INLINE const rota_recovery_case *rota_recovery_choose(uint32_t found)
{
    for (size_t i = 0; i < ROTA_RECOVERY_CASE_COUNT; i++) {
        if (rota_recovery_matches(&rota_recovery_cases[i], found))
            return &rota_recovery_cases[i];
    }
    __builtin_unreachable();
}

#endif
