/* Which file systems may hold a repository.
 *
 * What holds:
 *  1. The list names what is allowed; everything else, known or not, is refused with its name. Shared mappings of one
 *     file by several processes and a sync that reaches the disk are the promises that a listed one keeps.
 *  2. Two witnesses must agree: the magic number of statfs and the type in the mount table. Magic alone does not tell
 *     virtiofs from other FUSE, and the table alone is text that a name space may hide.
 *  3. Copy-on-write file systems are refused too: space reserved there is no promise that an overwrite finds room.
 */
#ifndef ROTA_FILESYSTEM_H
#define ROTA_FILESYSTEM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "rota/platform.h"

typedef struct rota_filesystem_entry {
    uint32_t magic;
    int verdict;
    const char *name;
} rota_filesystem_entry;

/* The first entry of a magic names it when the mount table is silent. Refused ones stand here for their names. */
static __attribute__((unused)) const rota_filesystem_entry rota_filesystems[] = {
    {0x0000ef53, ROTA_FILESYSTEM_ALLOWED, "ext4"},     {0x0000ef53, ROTA_FILESYSTEM_ALLOWED, "ext3"},
    {0x0000ef53, ROTA_FILESYSTEM_ALLOWED, "ext2"},     {0x58465342, ROTA_FILESYSTEM_ALLOWED, "xfs"},
    {0x01021994, ROTA_FILESYSTEM_VOLATILE, "tmpfs"},   {0x858458f6, ROTA_FILESYSTEM_VOLATILE, "ramfs"},
    {0x9123683e, ROTA_FILESYSTEM_REFUSED, "btrfs"},    {0x2fc12fc1, ROTA_FILESYSTEM_REFUSED, "zfs"},
    {0xca451a4e, ROTA_FILESYSTEM_REFUSED, "bcachefs"}, {0x794c7630, ROTA_FILESYSTEM_REFUSED, "overlay"},
    {0x65735546, ROTA_FILESYSTEM_REFUSED, "fuse"},     {0x01021997, ROTA_FILESYSTEM_REFUSED, "9p"},
    {0x00006969, ROTA_FILESYSTEM_REFUSED, "nfs"},      {0xff534d42, ROTA_FILESYSTEM_REFUSED, "cifs"},
    {0xfe534d42, ROTA_FILESYSTEM_REFUSED, "smb2"},     {0x0000517b, ROTA_FILESYSTEM_REFUSED, "smb"},
    {0x00c36400, ROTA_FILESYSTEM_REFUSED, "ceph"},     {0x0bd00bd0, ROTA_FILESYSTEM_REFUSED, "lustre"},
    {0x01161970, ROTA_FILESYSTEM_REFUSED, "gfs2"},     {0x7461636f, ROTA_FILESYSTEM_REFUSED, "ocfs2"},
    {0x5346414f, ROTA_FILESYSTEM_REFUSED, "afs"},      {0x786f4256, ROTA_FILESYSTEM_REFUSED, "vboxsf"},
    {0xf2f52010, ROTA_FILESYSTEM_REFUSED, "f2fs"},     {0x00004d44, ROTA_FILESYSTEM_REFUSED, "vfat"},
    {0x2011bab0, ROTA_FILESYSTEM_REFUSED, "exfat"},    {0x5346544e, ROTA_FILESYSTEM_REFUSED, "ntfs"},
    {0x0000f15f, ROTA_FILESYSTEM_REFUSED, "ecryptfs"}, {0x73717368, ROTA_FILESYSTEM_REFUSED, "squashfs"},
    {0x00009fa0, ROTA_FILESYSTEM_REFUSED, "proc"},     {0x62656572, ROTA_FILESYSTEM_REFUSED, "sysfs"},
};

/* The verdict on a magic number and a mount table type (NULL: not known); name receives what to call it. */
ROTA_COLD int rota_filesystem_verdict(uint32_t magic, const char *type, char name[32])
{
    const rota_filesystem_entry *first = NULL;
    int verdict = ROTA_FILESYSTEM_REFUSED;
    for (size_t index = 0; index < sizeof rota_filesystems / sizeof rota_filesystems[0]; index++) {
        const rota_filesystem_entry *entry = &rota_filesystems[index];
        if (entry->magic != magic)
            continue;
        if (first == NULL)
            first = entry;
        if (type == NULL || strcmp(type, entry->name) == 0) {
            verdict = entry->verdict;
            break;
        }
    }
    if (type != NULL)
        snprintf(name, 32, "%.31s", type);
    else if (first != NULL)
        snprintf(name, 32, "%s", first->name);
    else
        snprintf(name, 32, "0x%08x", (unsigned)magic);
    return verdict;
}

/* The number of the mount that fd lies in, as the kernel tells it in fdinfo; -1 when it does not. */
ROTA_COLD long rota_filesystem_mount(int fd)
{
    char path[64], line[256];
    long mount = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return -1;
    while (fgets(line, sizeof line, stream) != NULL)
        if (sscanf(line, "mnt_id: %ld", &mount) == 1)
            break;
    fclose(stream);
    return mount;
}

/* The type of that mount from the mount table: the word after " - ". False when it is not listed. */
ROTA_COLD bool rota_filesystem_type(long mount, char type[64])
{
    FILE *stream = fopen("/proc/self/mountinfo", "re");
    if (stream == NULL)
        return false;
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    while (!found && getline(&line, &size, stream) > 0) {
        char *separator = strstr(line, " - ");
        found = strtol(line, NULL, 10) == mount && separator != NULL && sscanf(separator, " - %63s", type) == 1;
    }
    free(line);
    fclose(stream);
    return found;
}

ROTA_COLD int rota_filesystem_kind(int fd, char name[32])
{
    struct statfs facts;
    char type[64];
    if (fstatfs(fd, &facts) != 0)
        return -errno;
    long mount = rota_filesystem_mount(fd);
    bool listed = mount >= 0 && rota_filesystem_type(mount, type);
    return rota_filesystem_verdict((uint32_t)facts.f_type, listed ? type : NULL, name);
}

#endif
