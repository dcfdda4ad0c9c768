/* Partitions: the elements of an array that belong to each thread or block; a part of kernel.h, which includes it. */
#ifndef OFFLOAD_ARGS_KERNEL_PARTITIONS_H
#define OFFLOAD_ARGS_KERNEL_PARTITIONS_H
#ifdef __cplusplus
#include "offload_args/kernel_elements.h"

namespace oa {
/* -- regions: elements of one thread ------------------------------------------------------------------------------- */
/* One element, or none. */
struct One {
  long long row, column, index;
  bool mine;
};
/* The numbers first, first + step and so on, below end. */
struct Run {
  long long first, end, step;
  OA_FUNCTION long long size() const { return end > first ? (end - first + step - 1) / step : 0; }
};
/* The elements at some rows and columns; rows start ld elements apart. */
struct Lines {
  Run rows, columns;
  long long ld;
};

/* Returns a thread's share of first..end - 1. On a GPU, neighbouring elements belong to neighbouring threads, which
 * read and write them together; on the CPU, each thread has a run, so that its loop is simple. */
OA_FUNCTION Run share(long long first, long long end, long long thread, long long threads) {
#if OA_ON_GPU
  return {first + thread, end, threads};
#else
  if (threads == 1) return {first, end, 1};
  const long long size = end > first ? end - first : 0, each = size / threads, more = size % threads;
  const long long before = thread * each + (thread < more ? thread : more);
  return {first + before, first + before + each + (thread < more), 1};
#endif
}

OA_FUNCTION long long smaller(long long a, long long b) { return a < b ? a : b; }

/* -- partitions: the owner of each element ------------------------------------------------------------------------- */
/* Element i belongs to thread i of the grid's x axis. Only the first thread along y and z has elements. */
struct Linear1D {
  long long n;
  OA_FUNCTION explicit Linear1D(long long n) : n(n) {}
  OA_FUNCTION One of(const Here &here) const {
    const long long i = here.index();
    return {0, i, i, here.is_before(n, here.is_on_x())};
  }
};

/* The threads along x share the elements: any grid covers all elements. On a GPU, element i belongs to thread i modulo
 * the number of threads; on the CPU, each thread has a run. */
struct GridStride1D {
  long long n;
  OA_FUNCTION explicit GridStride1D(long long n) : n(n) {}
  OA_FUNCTION Run of(const Here &here) const {
    const bool mine = here.is_on_x();
    return share(0, mine ? n : 0, here.index(), here.size());
  }
};

/* Element i, of n, belongs to the first thread of block i along x. */
struct PerBlock {
  long long n;
  OA_FUNCTION PerBlock() : n(1LL << 62) {}
  OA_FUNCTION explicit PerBlock(long long n) : n(n) {}
  OA_FUNCTION One of(const Here &here) const {
    const long long i = here.block_index();
    const bool mine = i < n && here.thread() == 0 && here.block_index(1) == 0 && here.block_index(2) == 0;
    return {0, i, i, mine};
  }
};

/* A matrix whose rows start ld elements apart. If its rows overlap, its elements have no owners. */
struct Matrix {
  long long rows, columns, ld;
  OA_FUNCTION Matrix(long long rows, long long columns) : rows(rows), columns(columns), ld(columns) {}
  OA_FUNCTION Matrix(long long rows, long long columns, long long ld)
      : rows(columns <= ld ? rows : 0), columns(columns), ld(ld) {}
};

/* Element (row, column) belongs to thread `row` along y and `column` along x. */
struct Linear2D : Matrix {
  using Matrix::Matrix;
  OA_FUNCTION One of(const Here &here) const {
    const long long row = here.index(1), column = here.index();
    const bool mine = row < rows && here.index(2) == 0;
    return {row, column, row * ld + column, here.is_before(columns, mine)};
  }
};

/* Row i belongs to thread i of the grid's x axis. */
struct Rows : Matrix {
  using Matrix::Matrix;
  OA_FUNCTION Lines of(const Here &here) const {
    const long long row = here.index();
    const bool mine = row < rows && here.is_on_x();
    return {{row, row + mine, 1}, {0, columns, 1}, ld};
  }
};

/* The rows and columns of a matrix that belong to one block: their starts and their numbers. */
struct Box {
  long long row, column, rows, columns;
};

/* Returns a thread's share of a box: the block's threads share its rows along y, and its columns along x. */
OA_FUNCTION Lines shared_out(const Box &box, long long ld, const Here &here) {
  const bool mine = here.thread_index(2) == 0;
  return {share(box.row, mine ? box.row + box.rows : box.row, here.thread_index(1), here.threads(1)),
          share(box.column, box.column + box.columns, here.thread_index(), here.threads()), ld};
}

/* Rows i * height to (i + 1) * height - 1 belong to block i along x. */
template <int height>
struct RowBlocks : Matrix {
  static_assert(height > 0, "RowBlocks needs 1 or more rows a block");
  using Matrix::Matrix;
  template <class BlockOrHere>
  OA_FUNCTION Box box(const BlockOrHere &here) const {
    const long long row = static_cast<long long>(height) * here.block_index();
    const bool mine = row < rows && here.block_index(1) == 0 && here.block_index(2) == 0;
    return {row, 0, mine ? smaller(height, rows - row) : 0, columns};
  }
  OA_FUNCTION Lines of(const Here &here) const { return shared_out(box(here), ld, here); }
};

/* Block i along y, j along x has the tile that begins at row i * height and column j * width. */
template <int height, int width>
struct Tiles : Matrix {
  static_assert(height > 0 && width > 0, "Tiles needs tiles of 1 or more rows and columns");
  using Matrix::Matrix;
  template <class BlockOrHere>
  OA_FUNCTION Box box(const BlockOrHere &here) const {
    const long long row = static_cast<long long>(height) * here.block_index(1);
    const long long column = static_cast<long long>(width) * here.block_index();
    const bool mine = row < rows && column < columns && here.block_index(2) == 0;
    return {row, column, mine ? smaller(height, rows - row) : 0, mine ? smaller(width, columns - column) : 0};
  }
  OA_FUNCTION Lines of(const Here &here) const { return shared_out(box(here), ld, here); }
};

}  // namespace oa

#endif
#endif
