package redis

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// convert changes a value from the form that the agent's Argo CD stores to the form that the hub requests. A value that
// needs no change is returned as it is.
func convert(value []byte, zipped, wantZipped bool, most int, rewrite func([]byte) []byte) ([]byte, error) {
	if zipped == wantZipped && rewrite == nil {
		return value, nil
	}
	plain := value
	if zipped {
		var err error
		if plain, err = unzip(value, most); err != nil {
			return nil, err
		}
	}
	if rewrite != nil {
		changed := rewrite(plain)
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

func unzip(value []byte, most int) ([]byte, error) {
	var plain []byte
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err == nil {
		plain, err = io.ReadAll(io.LimitReader(r, int64(most)+1))
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errCompression, err)
	case len(plain) > most:
		return nil, fmt.Errorf("%w: more than %d bytes", errCompression, most)
	}
	return plain, nil
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
