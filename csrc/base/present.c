#include "base/present.h"

#include <stddef.h>

static uintptr_t max_of(uintptr_t a, uintptr_t b) { return a > b ? a : b; }

static void refresh(oa_present *node) {
  node->highest = node->high;
  if (node->left) node->highest = max_of(node->highest, node->left->highest);
  if (node->right) node->highest = max_of(node->highest, node->right->highest);
}

/* Breaks ties on low by address, so that every element has one place and can be found again. */
static int before(const oa_present *a, const oa_present *b) {
  return a->low != b->low ? a->low < b->low : (uintptr_t)a < (uintptr_t)b;
}

static void split(oa_present *tree, const oa_present *key, oa_present **less, oa_present **more) {
  if (!tree) {
    *less = *more = NULL;
  } else if (before(tree, key)) {
    split(tree->right, key, &tree->right, more);
    *less = tree;
    refresh(tree);
  } else {
    split(tree->left, key, less, &tree->left);
    *more = tree;
    refresh(tree);
  }
}

static oa_present *merge(oa_present *less, oa_present *more) {
  if (!less) return more;
  if (!more) return less;
  if (less->priority > more->priority) {
    less->right = merge(less->right, more);
    refresh(less);
    return less;
  }
  more->left = merge(less, more->left);
  refresh(more);
  return more;
}

void oa_present_insert(oa_present_table *table, oa_present *element) {
  oa_present *less, *more;
  table->seed = table->seed * 1664525u + 1013904223u; /* any cheap sequence balances a treap */
  element->priority = table->seed ^ (table->seed >> 16);
  element->left = element->right = NULL;
  element->highest = element->high;
  split(table->root, element, &less, &more);
  table->root = merge(merge(less, element), more);
}

static oa_present *removed(oa_present *tree, oa_present *element) {
  if (tree == element) return merge(tree->left, tree->right);
  if (!tree) return NULL;
  if (before(element, tree))
    tree->left = removed(tree->left, element);
  else
    tree->right = removed(tree->right, element);
  refresh(tree);
  return tree;
}

void oa_present_remove(oa_present_table *table, oa_present *element) { table->root = removed(table->root, element); }

static int visit_in(oa_present *tree, uintptr_t low, uintptr_t high, int (*visit)(oa_present *, void *), void *data) {
  if (!tree || tree->highest <= low) return 0;
  int result = visit_in(tree->left, low, high, visit, data);
  if (result) return result;
  if (tree->low >= high) return 0;
  if (tree->high > low && (result = visit(tree, data))) return result;
  return visit_in(tree->right, low, high, visit, data);
}

int oa_present_visit(const oa_present_table *table, uintptr_t low, uintptr_t high,
                     int (*visit)(oa_present *element, void *data), void *data) {
  return visit_in(table->root, low, high, visit, data);
}
