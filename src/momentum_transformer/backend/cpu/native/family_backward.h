// Any member of the family, backward pass: from the last segment to the first, chunk by chunk. The forward pass saves
// nothing but predictions, denominators and the states before segments; those before chunks are recomputed.
#pragma once
#include "family_adjoint.h"
#include "family_chunk.h"

namespace {

template <class T> struct FamilyBackward {
    struct Chunk {
        int64_t begin, count;
        int64_t start;  // index in `starts` of the state before it; NOTHING: it begins a document
    };
    static constexpr int64_t NOTHING = -1;

    const FamilyProblem& p;
    FamilySizes<T> size;
    // padded width of values; row length and size of a plane, which TokenForm holds transposed
    int64_t ep, ld, plane;
    FamilyRows<T> rows;
    ChunkForm<T> chunk_form;
    TokenForm<T> token_form;
    T *D, *E, *dz;                // gradients of s and m; that of z after the segment
    BlockedSum<T> sum;            // of the gradient of s, which D has the segment of
    // the whole of it, or for TokenForm what `base` holds of it; null without blocked summation
    T* total;
    T* dz_local;                  // what the segment has added to dz
    T *starts, *z_starts;         // states before chunks; the last is zero: that before a document
    T* matrix;                    // scratch for transposing a plane
    Chunk* chunks;                // of the segment
    uint8_t* reset;
    double totals[COEFFICIENTS];  // gradients of coefficients that are the same at all tokens

    FamilyBackward(const FamilyProblem& p, Arena& arena)
        : p(p), size(p), ep(Sizes<T>(p).ep), ld(p.channels ? size.dp : plane_ld<T>(ep)),
          plane(p.channels ? ep * ld : size.dp * ld), rows(p, arena), chunk_form(rows, arena), token_form(rows, arena),
          D(arena.take<T>(plane)), E(size.planes == 2 ? arena.take<T>(plane) : nullptr), dz(arena.take<T>(size.dp)),
          sum(p, plane, size.dp, arena), total(p.sum_segments ? arena.take<T>(plane) : nullptr),
          dz_local(arena.take<T>(size.dp)), starts(arena.take<T>((most_starts() + 1) * size.planes * plane)),
          z_starts(arena.take<T>((most_starts() + 1) * size.dp)), matrix(arena.take<T>(size.dp * ep)),
          chunks(arena.take<Chunk>(p.segment)), reset(arena.take<uint8_t>(p.n + 1)) {}
    int64_t most_starts() const { return p.segment / rows.most; }
    T* start(int64_t index, int l) const {
        if (l >= size.planes) return nullptr;
        return starts + ((index == NOTHING ? most_starts() : index) * size.planes + l) * plane;
    }
    T* z_start(int64_t index) const { return z_starts + (index == NOTHING ? most_starts() : index) * size.dp; }
    static void clear(T* from, int64_t count) { FamilyRows<T>::clear(from, count); }
    template <class F> void with_form(F f) { p.channels ? f(token_form) : f(chunk_form); }

    void run_chunk(const Sequence<T>& x, const Chunk& chunk) {
        bool begins = chunk.start == NOTHING;
        rows.fill_keys(x, chunk.begin, chunk.count, begins);
        rows.fill_queries(x, chunk.count);
        const Vec<T> fade = broadcast(sum.kept(0));
        for (int64_t i = 0; sum.active && !p.channels && i < plane; i += width<T>)
            store(total + i, fade * load(sum.base + i) + load(D + i));
        prefetch_before(x, chunk);
        with_form([&](auto& form) {
            form.run(chunk.count, D, E, sum.active ? total : D, start(chunk.start, 0), start(chunk.start, 1));
        });
        for (int64_t t = 0; sum.active && t < chunk.count; t++) sum.decay(rows.c.alpha[t], rows.A + t * size.dp);
        if (p.normalize || p.dz_after) denominators(chunk.count, z_start(chunk.start));
        rows.write(x, chunk.count, totals);
        if (begins) forget();
    }
    // Prefetches the rows of the segment before and its saved state, a part of both with each chunk.
    void prefetch_before(const Sequence<T>& x, const Chunk& chunk) {
        const int64_t state = size.unpadded_state(), part = state / most_starts() + 1;
        const T* from = static_cast<const T*>(p.prefix);
        if (from) from += (x.index() * segments(p) + chunk.begin / p.segment - 1) * state;
        if (from) from += chunk.begin % p.segment / rows.most * part;
        rows.prefetch_chunk(x, chunk.begin - p.segment, from, part);
    }
    // No gradient reaches what is before the first token of a document.
    void forget() {
        for (T* gradient : {D, E, sum.base, total})
            if (gradient) clear(gradient, plane);
        for (T* gradient : {dz, dz_local}) clear(gradient, size.dp);
    }
    // q̇ += ż z_t and k̇ += the gradient of z.
    void denominators(int64_t count, const T* z) {
        int64_t dp = size.dp;
        for (int64_t at = 0; at < dp; at += width<T>) {
            Vec<T> sum = load(z + at), of_z = load(dz_local + at);
            const Vec<T> after = load(dz + at);
            for (int64_t t = 0; t < count; t++) {
                T* dq = rows.dQ + t * dp + at;
                sum += load(rows.K + t * dp + at);
                store(dq, load(dq) + rows.d_denominator[t] * sum);
            }
            for (int64_t t = count - 1; t >= 0; t--) {
                T* dk = rows.dK + t * dp + at;
                of_z += rows.d_denominator[t] * load(rows.Q + t * dp + at);
                store(dk, load(dk) + (of_z + after));
            }
            store(dz_local + at, of_z);
        }
    }

    // Cuts a segment into chunks, and returns how many. A document always begins with the first token of a chunk.
    int64_t cut(int64_t begin, int64_t end, bool nothing_before) {
        int64_t found = 0, used = 0;
        for (int64_t at = begin; at < end; at += chunks[found++].count) {
            int64_t count = 1;
            while (count < rows.most && at + count < end && !reset[at + count]) count++;
            bool begins = reset[at] || (at == begin && nothing_before);
            chunks[found] = {at, count, begins ? NOTHING : used++};
        }
        return found;
    }
    // The states before all chunks, from that before the first.
    void recompute_starts(const Sequence<T>& x, int64_t found) {
        for (int64_t i = 0; i + 1 < found; i++) {
            const Chunk &chunk = chunks[i], &next = chunks[i + 1];
            if (next.start == NOTHING) continue;
            rows.fill_keys(x, chunk.begin, chunk.count, chunk.start == NOTHING);
            with_form([&](auto& form) {
                form.advance(chunk.count, start(next.start, 0), start(next.start, 1), start(chunk.start, 0),
                             start(chunk.start, 1));
            });
            memcpy(z_start(next.start), z_start(chunk.start), size.dp * sizeof(T));
            add_rows(z_start(next.start), rows.K, chunk.count, size.dp);
        }
    }
    void segment(const Sequence<T>& x, int64_t index) {
        int64_t begin = index * p.segment, end = min(begin + p.segment, x.count);
        const T *s = nullptr, *z = nullptr;
        if (p.prefix) {
            s = static_cast<const T*>(p.prefix) + (x.index() * segments(p) + index) * size.unpadded_state();
            z = s + size.matrices();
        } else if (p.s) {
            s = static_cast<const T*>(p.s) + x.index() * size.matrices();
            z = p.z ? static_cast<const T*>(p.z) + x.index() * size.d : nullptr;
        }
        int64_t found = cut(begin, end, !s || (index == 0 && !p.s));
        if (chunks[0].start != NOTHING) {
            read_planes(start(0, 0), start(0, 1), s);
            clear(z_start(0), size.dp);
            if (z) memcpy(z_start(0), z, size.d * sizeof(T));
        }
        recompute_starts(x, found);
        merge(sum.decays_slowly(x, begin, end));
        if (p.channels && sum.active) memcpy(total, sum.base, plane * sizeof(T));
        for (int64_t i = found - 1; i >= 0; i--) run_chunk(x, chunks[i]);
        add_to(dz, dz_local, size.dp);
        clear(dz_local, size.dp);
    }

    void merge(bool next) {  // before a segment, and after the last
        const int64_t features = p.channels ? ld : plane;
        sum.merge(D, sum.base, plane / features, features, false, next);
        sum.start(next);
    }
    // Copies between the unpadded planes (d × e) of a tensor and the planes of ChunkForm or TokenForm.
    void read_planes(T* s, T* m, const T* matrices) {
        for (T* to : {s, m}) {
            if (!to) continue;
            clear(to, plane);
            if (!matrices) continue;
            T* plain = p.channels ? matrix : to;
            int64_t ld_plain = p.channels ? ep : ld;
            if (p.channels) clear(matrix, size.dp * ep);
            for (int64_t i = 0; i < size.d; i++, matrices += size.e)
                memcpy(plain + i * ld_plain, matrices, size.e * sizeof(T));
            if (p.channels) transpose(to, ld, matrix, ep, size.dp, ep);
        }
    }
    void write_planes(T* matrices, const T* s, const T* m) {
        for (const T* from : {s, m}) {
            if (!from) continue;
            if (p.channels) transpose(matrix, ep, from, ld, ep, size.dp);
            for (int64_t i = 0; i < size.d; i++, matrices += size.e)
                memcpy(matrices, p.channels ? matrix + i * ep : from + i * ld, size.e * sizeof(T));
        }
    }

    void run(int64_t sequence) {
        Sequence<T> x(p, sequence);
        rows.c.set_head(p, x.h);
        fill_resets(reset, p, x);
        memset(totals, 0, sizeof totals);
        clear(start(NOTHING, 0), size.planes * plane);
        clear(z_start(NOTHING), size.dp);
        bool forgotten = reset[x.count];
        const T *ds_after = static_cast<const T*>(p.ds_after), *dz_after = static_cast<const T*>(p.dz_after);
        read_planes(D, E, ds_after && !forgotten ? ds_after + x.index() * size.matrices() : nullptr);
        sum.clear(plane);
        clear(dz, size.dp);
        clear(dz_local, size.dp);
        if (dz_after && !forgotten) memcpy(dz, dz_after + x.index() * size.d, size.d * sizeof(T));
        for (int64_t i = x.segments() - 1; i >= 0 && !stopped(&p); i--) segment(x, i);
        merge(false);
        if (p.ds) {
            write_planes(static_cast<T*>(p.ds) + x.index() * size.matrices(), D, E);
            if (p.dz) memcpy(static_cast<T*>(p.dz) + x.index() * size.d, dz, size.d * sizeof(T));
        }
        for (int name = 0; name < COEFFICIENTS; name++)
            if (p.d_family[name].heads) p.d_family[name].heads[x.index()] = totals[name];
    }
};

}  // namespace
