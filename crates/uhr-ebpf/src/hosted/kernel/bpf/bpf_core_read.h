/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Stands in for libbpf's header of this name: here the programs' own structures are the real ones. */
#ifndef UHR_HOSTED_CORE_READ_H
#define UHR_HOSTED_CORE_READ_H

#define CORE_1(from, a) ((from)->a)
#define CORE_2(from, a, b) ((from)->a->b)
#define CORE_3(from, a, b, c) ((from)->a->b->c)
#define CORE_PICK(a, b, c, picked, ...) picked
#define BPF_CORE_READ(from, ...) CORE_PICK(__VA_ARGS__, CORE_3, CORE_2, CORE_1)(from, __VA_ARGS__)
#define BPF_CORE_READ_BITFIELD(from, field) ((from)->field)
#define bpf_core_field_exists(field) 1
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define bpf_core_type_size(type) sizeof(type)

#endif
