package redis

// fifo is a queue that reuses its memory. The zero value is empty.
type fifo[T any] struct {
	items []T
	head  int // items before it were popped
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

// at returns the i-th oldest item.
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

func (f *fifo[T]) push(item T) {
	if f.head > 0 && len(f.items) == cap(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, item)
}

func (f *fifo[T]) pop() T {
	var zero, item T
	item, f.items[f.head] = f.items[f.head], zero
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return item
}
