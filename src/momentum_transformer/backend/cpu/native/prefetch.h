// Software prefetch of the rows that the next block of tokens needs, spread over the work on the current block.
#pragma once
#include "sequence.h"

namespace {

// Cache lines are requested a few at a time, because a core can have only a few dozen misses in flight. The hardware
// prefetcher does not help here: it stops at page boundaries, and every block may begin on a new page. Rows beyond the
// ends of a sequence belong to its neighbour or to nothing; prefetching them is harmless.
struct Prefetch {
    struct Range {
        const char* row;
        int64_t stride, bytes, rows;
    };
    Range ranges[8];
    int from = 0, to = 0;  // ranges that are still to be requested
    int64_t lines = 0;     // cache lines of all ranges
    void clear() { from = to = 0, lines = 0; }
    template <class T> void add(const RowView<T>& x, int64_t begin, int64_t rows, int64_t columns) {
        int64_t bytes = columns * (x.storage == FULL_WIDTH ? (int64_t)sizeof(T) : 2);
        const char* row = x.data + begin * x.stride;  // ignores x.index: where tokens are masked, a guess
        if (bytes == x.stride)  // contiguous memory: pieces of 256 bytes
            ranges[to] = {row, 256, 256, (rows * bytes + 255) / 256};
        else
            ranges[to] = {row, x.stride, bytes, rows};
        lines += ranges[to].rows * ((ranges[to].bytes + 63) / 64);
        to++;
    }
    void add(const void* memory, int64_t bytes) {
        ranges[to] = {static_cast<const char*>(memory), 256, 256, (bytes + 255) / 256};
        lines += 4 * ranges[to++].rows;
    }
    __attribute__((noinline)) void issue(int64_t least) {  // requests whole rows: `least` cache lines or more
        for (int64_t count = 0; count < least && from < to;) {
            Range& range = ranges[from];
            for (int64_t at = 0; at < range.bytes; at += 64, count++) __builtin_prefetch(range.row + at, 0, 1);
            range.row += range.stride;
            if (--range.rows == 0) from++;
        }
    }
};

}  // namespace
