//! The walkers of the programs in the kernel, run without a kernel: the same C sources, compiled for this machine under
//! sanitizers (`kernel/walker.c`), with tables written by the same code that writes them for the kernel, over memory and
//! registers that were recorded or made up.

mod copies;
mod endings;
mod every_instruction;
mod forged;
mod frame_pointers;
mod machine;
mod places;
mod planted;
mod random;
mod remembered;
mod simulated;
mod stepped;
