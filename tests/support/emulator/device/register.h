// How a kernel file's kernels become known to the driver. The build writes a call of `Registered` for each of them.
#pragma once

#include <type_traits>
#include <utility>

namespace emulated {

struct Argument {
    unsigned size;
    bool pointer;
};

struct Kernel {
    const char *name;
    void (*function)();
    // Calls `function` with arguments read from these addresses.
    void (*invoke)(void (*function)(), void *const *arguments);
    const Argument *arguments;
    unsigned count;
};

void register_kernel(const Kernel &kernel);

template <class... A, size_t... I>
void invoke(void (*function)(A...), void *const *arguments, std::index_sequence<I...>) {
    (void)arguments;
    function(*(std::remove_cv_t<A> *)arguments[I]...);
}

struct Registered {
    template <class... A> Registered(const char *name, void (*function)(A...)) {
        // One more than there are, as an array has at least one element.
        static const Argument arguments[] = {Argument{sizeof(A), std::is_pointer<A>::value}..., Argument{0, false}};
        register_kernel({name, (void (*)())function,
                         [](void (*f)(), void *const *values) {
                             invoke((void (*)(A...))f, values, std::index_sequence_for<A...>{});
                         },
                         arguments, sizeof...(A)});
    }
};

}  // namespace emulated
