package redis

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
)

// convert changes a value from the form that the agent's Argo CD stores to the form that the hub requests. A value that
// needs no change is returned as it is. The parameter most limits the bytes of the uncompressed value, also after
// rewrite. reserve is called before more than largeFrame bytes are used. It can block.
func convert(value []byte, zipped, wantZipped bool, most int, rewrite func([]byte) ([]byte, error), reserve func(n int) error) ([]byte, error) {
	if zipped == wantZipped && rewrite == nil {
		return value, nil
	}
	plain := value
	if zipped {
		var err error
		if plain, err = unzip(value, most, func(n int) error { return reserve(len(value) + n) }); err != nil {
			return nil, err
		}
	}
	if rewrite != nil {
		if len(plain) >= largeFrame {
			if err := reserve(len(value) + 3*len(plain)); err != nil {
				return nil, err
			}
		}
		changed, err := rewrite(plain)
		if err == nil && len(changed) > most {
			err = fmt.Errorf("value with the names of the hub has %d bytes, the limit is %d", len(changed), most)
		}
		if err != nil {
			return nil, err
		}
		if zipped == wantZipped && bytes.Equal(changed, plain) {
			return value, nil
		}
		plain = changed
	}
	if !wantZipped {
		return plain, nil
	}
	return zip(plain)
}

var errCompression = errors.New("decompress value")

// unzip calls reserve before it uses largeFrame bytes or more. If nil, memory is not reserved.
func unzip(value []byte, most int, reserve func(n int) error) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCompression, err)
	}
	var plain []byte
	for len(plain) <= most {
		if len(plain) == cap(plain) {
			next := min(max(2*len(plain), 4*len(value), 4<<10), most+1)
			if next >= largeFrame && reserve != nil {
				if err := reserve(next + len(plain)); err != nil {
					return nil, err
				}
			}
			plain = slices.Grow(plain, next-len(plain))
		}
		n, err := r.Read(plain[len(plain):cap(plain)])
		switch plain = plain[:len(plain)+n]; {
		case err == io.EOF && len(plain) <= most: //nolint:errorlint // gzip returns it as it is
			return plain, nil
		case err != nil && err != io.EOF: //nolint:errorlint // gzip returns it as it is
			return nil, fmt.Errorf("%w: %w", errCompression, err)
		}
	}
	return nil, fmt.Errorf("%w: more than %d bytes", errCompression, most)
}

func zip(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
