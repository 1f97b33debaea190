// A short causal convolution with a bias and SiLU behind it, and its backward pass.
//
// A task is a group of channels of one sequence, from its first token to its last. Tokens that are not masked are
// processed in runs, each within one document; for each vector of channels the last few tokens stay in registers during
// a run, and in `window` between runs. Channels are independent, so how they are grouped changes no bit. Rows that are
// stored in a narrower type, or whose length is not a multiple of the vector width, are packed for a run.
#pragma once
#include "lanes.h"
#include "surroundings.h"

namespace {

template <class T> struct ShortConvolution {
    static constexpr int64_t RUN = 16, MOST_TAPS = 8;
    const LineConvolution& p;
    int64_t lanes;                               // of a group, padded
    T *weight, *d_weight;                        // (taps + 1, lanes) each, the latest token first, the bias last
    T *window, *pending;                         // (taps, lanes) each, the latest token first
    T *packed_x, *packed_dy, *packed_out;        // (RUN, lanes) each
    int64_t sequence = 0, first = 0, count = 0;  // the task: its channels first … first + count - 1
    bool turned = false;
    int64_t tokens[RUN], run = 0;                // of the current run
    T *x_rows[RUN], *dy_rows[RUN], *out_rows[RUN];
    char* gradients[RUN + MOST_TAPS];            // rows of dx of the tokens before and in the run, oldest first

    static int64_t group(const LineConvolution& p) {  // channels of a task
        int64_t wanted = 4 * p.threads / p.b + 1, least = 2 * width<T>;
        return p.threads == 1 ? round_up(p.c, least) : round_up((p.c + wanted - 1) / wanted, least);
    }
    static int64_t groups(int64_t channels, int64_t size) { return (channels + size - 1) / size; }
    static int64_t tasks(const LineConvolution& p) {
        return p.b * (groups(p.turned, group(p)) + groups(p.c - p.turned, group(p)));
    }

    ShortConvolution(const LineConvolution& p, Arena& arena)
        : p(p), lanes(round_up(min(group(p), p.c), width<T>)), weight(arena.take<T>((p.taps + 1) * lanes)),
          d_weight(arena.take<T>((p.taps + 1) * lanes)), window(arena.take<T>(p.taps * lanes)),
          pending(arena.take<T>(p.taps * lanes)), packed_x(arena.take<T>(RUN * lanes)),
          packed_dy(arena.take<T>(RUN * lanes)), packed_out(arena.take<T>(RUN * lanes)) {}

    void locate(int64_t task) {
        int64_t size = group(p), ahead = groups(p.turned, size), all = ahead + groups(p.c - p.turned, size);
        int64_t i = task % all;
        sequence = task / all;
        turned = i >= ahead;
        first = turned ? p.turned + (i - ahead) * size : i * size;
        count = min(size, (turned ? p.c : p.turned) - first);
        const T* from = static_cast<const T*>(p.weight) + first * p.taps;
        memset(weight, 0, (p.taps + 1) * lanes * sizeof(T));
        for (int64_t r = 0; r < p.taps; r++)
            for (int64_t x = 0; x < count; x++) weight[r * lanes + x] = from[x * p.taps + p.taps - 1 - r];
        if (p.bias) memcpy(weight + p.taps * lanes, static_cast<const T*>(p.bias) + first, count * sizeof(T));
        run = 0;
    }
    template <class S> S* line(const TensorView& view, int64_t token) const {
        return static_cast<S*>(view.data) + sequence * view.b + token * view.n + first;
    }
    template <class S> S* earlier(const void* data, int64_t r) const {  // in the layout of `past`: the row r tokens ago
        auto* rows = static_cast<S*>(const_cast<void*>(data));
        return rows + (sequence * (p.taps - 1) + p.taps - 1 - r) * p.c + first;
    }
    template <class S> void read(T* to, const void* from) const {  // from the layout of `past` to that of `window`
        memset(to, 0, p.taps * lanes * sizeof(T));
        if (!from) return;
        for (int64_t r = 1; r < p.taps; r++)
            for_each_lanes<T>(count, [&](int64_t x, int64_t some) {
                store(to + (r - 1) * lanes + x, load_lanes<T>(earlier<S>(from, r) + x, some));
            });
    }
    template <class S> void write(void* to, const T* from) const {
        for (int64_t r = 1; to && r < p.taps; r++)
            for_each_lanes<T>(count, [&](int64_t x, int64_t some) {
                store_lanes<T>(earlier<S>(to, r) + x, load(from + (r - 1) * lanes + x), some);
            });
    }

    // Rows of the run as the kernels read and write them: in place, or packed.
    template <class S> bool in_place() const { return sizeof(S) == sizeof(T) && count % width<T> == 0; }
    template <class S> void read_rows(T** rows, T* packed, const TensorView& view) const {
        for (int64_t i = 0; i < run; i++) {
            S* row = line<S>(view, tokens[i]);
            rows[i] = in_place<S>() ? reinterpret_cast<T*>(row) : packed + i * lanes;
            if (!in_place<S>())
                for_each_lanes<T>(count, [&](int64_t x, int64_t some) {
                    store(rows[i] + x, load_lanes<T>(row + x, some));
                });
        }
    }
    template <class S> void write_row(void* to, const T* from) const {
        if (!to || to == from) return;
        for_each_lanes<T>(count, [&](int64_t x, int64_t some) {
            store_lanes<T>(static_cast<S*>(to) + x, load(from + x), some);
        });
    }

    // Goes through the tokens that are not masked: finish() at the end of each run, begin() at the start of a document.
    template <class Finish, class Begin> void walk(Finish finish, Begin begin) {
        const uint8_t* mask = p.mask ? p.mask + sequence * p.n : nullptr;
        const uint8_t* reset = p.reset ? p.reset + sequence * p.n : nullptr;
        auto boundary = [&](int64_t t) {
            if (!reset || !reset[t]) return;
            finish();
            run = 0;
            begin();
        };
        for (int64_t i = 0; i < p.n; i++) {
            int64_t t = turned ? p.n - 1 - i : i;
            if (!turned) boundary(t);
            if (!mask || mask[t]) tokens[run++] = t;
            if (run == RUN) {
                finish();
                run = 0;
                if (stopped(&p)) return;
            }
            if (turned) boundary(t);  // backwards a document ends with its first token
        }
        finish();
    }

    template <int TAPS> void forward_kernel() {
        for (int64_t x = 0; x < count; x += width<T>) {
            Vec<T> w[TAPS], before[TAPS], bias = load(weight + TAPS * lanes + x);
            for (int r = 0; r < TAPS; r++) w[r] = load(weight + r * lanes + x);
            for (int r = 1; r < TAPS; r++) before[r] = load(window + (r - 1) * lanes + x);
            for (int64_t i = 0; i < run; i++) {
                before[0] = load(x_rows[i] + x);
                Vec<T> z = bias + w[0] * before[0];
                for (int r = 1; r < TAPS; r++) z += w[r] * before[r];
                store(out_rows[i] + x, p.silu ? z * logistic<T>(z) : z);
                for (int r = TAPS - 1; r > 0; r--) before[r] = before[r - 1];
            }
            for (int r = 1; r < TAPS; r++) store(window + (r - 1) * lanes + x, before[r]);
        }
    }

    // The gradient of a token is complete once the TAPS - 1 tokens after it are done; until then it is in `pending`.
    template <int TAPS> void backward_kernel() {
        for (int64_t x = 0; x < count; x += width<T>) {
            Vec<T> w[TAPS], before[TAPS], dx[TAPS], dw[TAPS], d_bias{}, bias = load(weight + TAPS * lanes + x);
            for (int r = 0; r < TAPS; r++) w[r] = load(weight + r * lanes + x), dw[r] = Vec<T>{};
            for (int r = 1; r < TAPS; r++) {
                before[r] = load(window + (r - 1) * lanes + x);
                dx[r] = load(pending + (r - 1) * lanes + x);
            }
            for (int64_t i = 0; i < run; i++) {
                before[0] = load(x_rows[i] + x);
                Vec<T> dz = load(dy_rows[i] + x);
                if (p.silu) {
                    Vec<T> z = bias + w[0] * before[0];
                    for (int r = 1; r < TAPS; r++) z += w[r] * before[r];
                    Vec<T> s = logistic<T>(z);
                    dz *= s * (T(1) + z * (T(1) - s));
                }
                dx[0] = Vec<T>{};
                d_bias += dz;
                for (int r = 0; r < TAPS; r++) dw[r] += dz * before[r], dx[r] += dz * w[r];
                store(out_rows[i] + x, dx[TAPS - 1]);
                for (int r = TAPS - 1; r > 0; r--) before[r] = before[r - 1], dx[r] = dx[r - 1];
            }
            for (int r = 1; r < TAPS; r++) {
                store(window + (r - 1) * lanes + x, before[r]);
                store(pending + (r - 1) * lanes + x, dx[r]);
            }
            auto add = [&](int r, Vec<T> more) {
                store(d_weight + r * lanes + x, load(d_weight + r * lanes + x) + more);
            };
            for (int r = 0; r < TAPS; r++) add(r, dw[r]);
            add(TAPS, d_bias);
        }
    }
    template <bool BACK, int TAPS = 2> void run_kernel() {
        if (p.taps == TAPS) return BACK ? backward_kernel<TAPS>() : forward_kernel<TAPS>();
        if constexpr (TAPS < MOST_TAPS) run_kernel<BACK, TAPS + 1>();
    }

    template <class S> void forward() {
        read<S>(window, p.past);
        auto finish = [&] {
            read_rows<S>(x_rows, packed_x, p.x);
            for (int64_t i = 0; i < run; i++)
                out_rows[i] = in_place<S>() ? line<T>(p.y, tokens[i]) : packed_out + i * lanes;
            run_kernel<false>();
            for (int64_t i = 0; i < run; i++) write_row<S>(line<S>(p.y, tokens[i]), out_rows[i]);
        };
        walk(finish, [&] { memset(window, 0, p.taps * lanes * sizeof(T)); });
        write<S>(p.after, window);
    }

    template <class S> void backward_run() {
        for (int64_t i = 0; i < run; i++)
            gradients[p.taps - 1 + i] = reinterpret_cast<char*>(line<S>(p.dx, tokens[i]));
        read_rows<S>(x_rows, packed_x, p.x);
        read_rows<S>(dy_rows, packed_dy, p.dy);
        for (int64_t i = 0; i < run; i++)
            out_rows[i] = in_place<S>() && gradients[i] ? reinterpret_cast<T*>(gradients[i]) : packed_out + i * lanes;
        run_kernel<true>();
        for (int64_t i = 0; i < run; i++) write_row<S>(gradients[i], out_rows[i]);
        for (int64_t i = 0; i < p.taps - 1; i++) gradients[i] = gradients[run + i];
    }
    template <class S> void write_pending() {  // at the end of a document they are complete
        for (int64_t i = 0; i < p.taps - 1; i++) {
            write_row<S>(gradients[i], pending + (p.taps - 2 - i) * lanes);
            gradients[i] = nullptr;
        }
    }
    template <class S> void backward() {
        int64_t bytes = p.taps * lanes * sizeof(T);
        read<S>(window, p.past);
        for (int64_t i = 0; i < p.taps - 1; i++)
            gradients[i] = p.d_past ? reinterpret_cast<char*>(earlier<S>(p.d_past, p.taps - 1 - i)) : nullptr;
        memset(pending, 0, bytes);
        memset(d_weight, 0, bytes + lanes * sizeof(T));
        walk([&] { backward_run<S>(); },
             [&] {
                 write_pending<S>();
                 memset(window, 0, bytes);
                 memset(pending, 0, bytes);
             });
        if (p.d_after) {
            read<S>(window, p.d_after);
            for (int64_t x = 0; x < (p.taps - 1) * lanes; x++) pending[x] += window[x];
        }
        write_pending<S>();
        T* parts = static_cast<T*>(p.d_parts) + sequence * (p.taps + 1) * p.c + first;
        for (int64_t r = 0; r <= p.taps; r++) memcpy(parts + r * p.c, d_weight + r * lanes, count * sizeof(T));
    }

    static void sum_parts(const LineConvolution& p) {  // in a fixed order, that of the batch
        const T* parts = static_cast<const T*>(p.d_parts);
        T *d_weight = static_cast<T*>(p.d_weight), *d_bias = static_cast<T*>(p.d_bias);
        for (int64_t r = 0; r < p.taps + (d_bias != nullptr); r++)
            for (int64_t x = 0; x < p.c; x++) {
                T sum = 0;
                for (int64_t i = 0; i < p.b; i++) sum += parts[(i * (p.taps + 1) + r) * p.c + x];
                (r < p.taps ? d_weight[x * p.taps + p.taps - 1 - r] : d_bias[x]) = sum;
            }
    }

    void run_task(int64_t task, bool back) {
        locate(task);
        with_storage<T>(p.dtype, [&](auto* storage) {
            using S = std::remove_pointer_t<decltype(storage)>;
            back ? backward<S>() : forward<S>();
        });
    }
};

}  // namespace
