// A short causal convolution with SiLU behind it, and its backward pass.
//
// A task is a group of channels of one sequence, from its first token to its last. Tokens that exist are taken in runs
// within one document; for each vector of channels the last few tokens stay in registers during a run, and in `window`
// between runs. Channels do not see each other, so how they are grouped changes no bit.
#pragma once
#include "lanes.h"
#include "surroundings.h"

namespace {

template <class T> struct ShortConvolution {
    static constexpr int64_t RUN = 16, MOST_TAPS = 8;
    const LineConvolution& p;
    int64_t lanes;                                // of a group, padded
    T *weight, *window, *pending, *d_weight;      // (taps, lanes) each, the latest token first
    int64_t sequence = 0, first = 0, count = 0;   // the task: its channels first … first + count - 1
    bool turned = false;
    int64_t tokens[RUN], run = 0;                 // of the current run
    char* written[RUN + MOST_TAPS];               // gradients of the tokens before the run, oldest first, and in it

    static int64_t group(const LineConvolution& p) {  // channels of a task
        int64_t wanted = 4 * p.threads / p.b + 1, least = 2 * width<T>;
        return p.threads == 1 ? round_up(p.c, least) : round_up((p.c + wanted - 1) / wanted, least);
    }
    static int64_t groups(int64_t channels, int64_t size) { return (channels + size - 1) / size; }
    static int64_t tasks(const LineConvolution& p) {
        return p.b * (groups(p.turned, group(p)) + groups(p.c - p.turned, group(p)));
    }

    ShortConvolution(const LineConvolution& p, Arena& arena)
        : p(p), lanes(round_up(min(group(p), p.c), width<T>)), weight(arena.take<T>(p.taps * lanes)),
          window(arena.take<T>(p.taps * lanes)), pending(arena.take<T>(p.taps * lanes)),
          d_weight(arena.take<T>(p.taps * lanes)) {}

    void locate(int64_t task) {
        int64_t size = group(p), ahead = groups(p.turned, size), all = ahead + groups(p.c - p.turned, size);
        int64_t i = task % all;
        sequence = task / all;
        turned = i >= ahead;
        first = turned ? p.turned + (i - ahead) * size : i * size;
        count = min(size, (turned ? p.c : p.turned) - first);
        const T* from = static_cast<const T*>(p.weight) + first * p.taps;
        for (int64_t r = 0; r < p.taps; r++)
            for (int64_t x = 0; x < count; x++) weight[r * lanes + x] = from[x * p.taps + p.taps - 1 - r];
        run = 0;
    }
    template <class S> S* line(const TensorView& view, int64_t token) const {
        return static_cast<S*>(view.data) + sequence * view.b + token * view.n + first;
    }
    template <class S> S* earlier(const void* data, int64_t r) const {  // of `past` and its like: r tokens ago
        auto* rows = static_cast<S*>(const_cast<void*>(data));
        return rows + (sequence * (p.taps - 1) + p.taps - 1 - r) * p.c + first;
    }
    template <class S> void read(T* to, const void* from) const {  // `past` and its like, as a window
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

    // Tokens that exist in their order: finish() ends a run, begin() starts a document.
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
            }
            if (turned) boundary(t);  // backwards a document ends with its first token
        }
        finish();
    }

    template <int TAPS, class S> void forward_run() {
        for_each_lanes<T>(count, [&](int64_t x, int64_t some) INLINE {
            Vec<T> w[TAPS], before[TAPS];
            for (int r = 0; r < TAPS; r++) w[r] = load(weight + r * lanes + x);
            for (int r = 1; r < TAPS; r++) before[r] = load(window + (r - 1) * lanes + x);
            for (int64_t i = 0; i < run; i++) {
                before[0] = load_lanes<T>(line<S>(p.x, tokens[i]) + x, some);
                Vec<T> z = w[0] * before[0];
                for (int r = 1; r < TAPS; r++) z += w[r] * before[r];
                store_lanes<T>(line<S>(p.y, tokens[i]) + x, p.silu ? z * logistic<T>(z) : z, some);
                for (int r = TAPS - 1; r > 0; r--) before[r] = before[r - 1];
            }
            for (int r = 1; r < TAPS; r++) store(window + (r - 1) * lanes + x, before[r]);
        });
    }
    template <int TAPS, class S> void forward() {
        read<S>(window, p.past);
        walk([&] { forward_run<TAPS, S>(); }, [&] { memset(window, 0, TAPS * lanes * sizeof(T)); });
        write<S>(p.after, window);
    }

    // The gradient of a token is complete once TAPS - 1 tokens behind it have added theirs.
    template <int TAPS, class S> void backward_run() {
        for (int64_t i = 0; i < run; i++) written[TAPS - 1 + i] = reinterpret_cast<char*>(line<S>(p.dx, tokens[i]));
        for_each_lanes<T>(count, [&](int64_t x, int64_t some) INLINE {
            Vec<T> w[TAPS], before[TAPS], dx[TAPS], dw[TAPS];
            for (int r = 0; r < TAPS; r++) w[r] = load(weight + r * lanes + x), dw[r] = Vec<T>{};
            for (int r = 1; r < TAPS; r++) {
                before[r] = load(window + (r - 1) * lanes + x);
                dx[r] = load(pending + (r - 1) * lanes + x);
            }
            for (int64_t i = 0; i < run; i++) {
                before[0] = load_lanes<T>(line<S>(p.x, tokens[i]) + x, some);
                Vec<T> dz = load_lanes<T>(line<S>(p.dy, tokens[i]) + x, some);
                if (p.silu) {
                    Vec<T> z = w[0] * before[0];
                    for (int r = 1; r < TAPS; r++) z += w[r] * before[r];
                    Vec<T> s = logistic<T>(z);
                    dz *= s * (T(1) + z * (T(1) - s));
                }
                dx[0] = Vec<T>{};
                for (int r = 0; r < TAPS; r++) dw[r] += dz * before[r], dx[r] += dz * w[r];
                if (written[i]) store_lanes<T>(reinterpret_cast<S*>(written[i]) + x, dx[TAPS - 1], some);
                for (int r = TAPS - 1; r > 0; r--) before[r] = before[r - 1], dx[r] = dx[r - 1];
            }
            for (int r = 1; r < TAPS; r++) {
                store(window + (r - 1) * lanes + x, before[r]);
                store(pending + (r - 1) * lanes + x, dx[r]);
            }
            for (int r = 0; r < TAPS; r++) store(d_weight + r * lanes + x, load(d_weight + r * lanes + x) + dw[r]);
        });
        for (int i = 0; i < TAPS - 1; i++) written[i] = written[run + i];
    }
    template <int TAPS, class S> void write_pending() {  // nothing more is added to them
        for (int i = 0; i < TAPS - 1; i++) {
            if (!written[i]) continue;
            for_each_lanes<T>(count, [&](int64_t x, int64_t some) {
                store_lanes<T>(reinterpret_cast<S*>(written[i]) + x, load(pending + (TAPS - 2 - i) * lanes + x), some);
            });
            written[i] = nullptr;
        }
    }
    template <int TAPS, class S> void backward() {
        int64_t bytes = TAPS * lanes * sizeof(T);
        read<S>(window, p.past);
        for (int i = 0; i < TAPS - 1; i++)
            written[i] = p.d_past ? reinterpret_cast<char*>(earlier<S>(p.d_past, TAPS - 1 - i)) : nullptr;
        memset(pending, 0, bytes);
        memset(d_weight, 0, bytes);
        walk([&] { backward_run<TAPS, S>(); },
             [&] {
                 write_pending<TAPS, S>();
                 memset(window, 0, bytes);
                 memset(pending, 0, bytes);
             });
        if (p.d_after) {
            read<S>(window, p.d_after);
            for (int64_t x = 0; x < (TAPS - 1) * lanes; x++) pending[x] += window[x];
        }
        write_pending<TAPS, S>();
        T* parts = static_cast<T*>(p.d_parts) + sequence * TAPS * p.c + first;
        for (int r = 0; r < TAPS; r++) memcpy(parts + r * p.c, d_weight + r * lanes, count * sizeof(T));
    }

    static void sum_parts(const LineConvolution& p) {  // in the order of the batch
        const T* parts = static_cast<const T*>(p.d_parts);
        T* sums = static_cast<T*>(p.d_weight);
        for (int64_t r = 0; r < p.taps; r++)
            for (int64_t x = 0; x < p.c; x++) {
                T sum = 0;
                for (int64_t i = 0; i < p.b; i++) sum += parts[(i * p.taps + r) * p.c + x];
                sums[x * p.taps + p.taps - 1 - r] = sum;
            }
    }

    template <int TAPS> void run_task(int64_t task, bool back) {
        if (p.taps != TAPS) {
            if constexpr (TAPS < MOST_TAPS) run_task<TAPS + 1>(task, back);
            return;
        }
        locate(task);
        with_storage<T>(p.dtype, [&](auto* storage) {
            using S = std::remove_pointer_t<decltype(storage)>;
            back ? backward<TAPS, S>() : forward<TAPS, S>();
        });
    }
};

}  // namespace
