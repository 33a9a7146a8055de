#include "fiber.h"

namespace emulated {

#if defined(__x86_64__)

// Registers that a callee keeps, by the System V ABI, go onto the stack; the stack pointer is the context.
extern "C" void emulated_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden emulated_switch
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulated_switch, . - emulated_switch
)");

void switch_context(Context *from, Context *to) { emulated_switch(from, *to); }

void prepare_context(Context *context, char *stack, size_t size, void (*entry)()) {
    void **top = (void **)((uintptr_t)(stack + size) & ~(uintptr_t)15);
    *--top = nullptr;  // Where `entry` would return to; it also puts the stack where a call would have put it.
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++) {
        *--top = nullptr;
    }
    *context = top;
}

#elif defined(__aarch64__)

extern "C" void emulated_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden emulated_switch
.globl emulated_switch
.type emulated_switch, %function
emulated_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size emulated_switch, . - emulated_switch
)");

void switch_context(Context *from, Context *to) { emulated_switch(from, *to); }

void prepare_context(Context *context, char *stack, size_t size, void (*entry)()) {
    void **top = (void **)(((uintptr_t)(stack + size) & ~(uintptr_t)15) - 160);
    for (int i = 0; i < 20; i++) {
        top[i] = nullptr;
    }
    top[11] = (void *)entry;  // x30, where `ret` goes.
    *context = top;
}

#else

void switch_context(Context *from, Context *to) { swapcontext(from, to); }

void prepare_context(Context *context, char *stack, size_t size, void (*entry)()) {
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = size;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
}

#endif

}  // namespace emulated
