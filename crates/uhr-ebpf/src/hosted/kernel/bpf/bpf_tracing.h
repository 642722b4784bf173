/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Stands in for libbpf's header of this name; what takes samples needs nothing of it. */
