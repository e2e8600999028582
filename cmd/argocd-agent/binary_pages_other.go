//go:build !linux

package main

func dropBinaryPages() {}
