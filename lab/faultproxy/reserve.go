package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// reservation reserves a loopback port with a bound socket that does not listen. Connections to the port are refused,
// no other process gets the port, and a listener of ours can open on it.
type reservation struct {
	fd   int
	addr *net.TCPAddr
}

// reservePort reserves a port of a loopback address. If port is 0, any.
func reservePort(host [4]byte, port int) (*reservation, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	bound, err := bindLoopback(fd, host, port)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", errors.Join(err, syscall.Close(fd)))
	}
	return &reservation{fd: fd, addr: &net.TCPAddr{IP: net.IP(bound.Addr[:]), Port: bound.Port}}, nil
}

func bindLoopback(fd int, host [4]byte, port int) (*syscall.SockaddrInet4, error) {
	// With this option, the reserving and the listening socket share the port.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: host, Port: port}); err != nil {
		return nil, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return nil, fmt.Errorf("unexpected socket address %T", name)
	}
	return bound, nil
}

// listen opens the port. Go sets the same option on its listeners.
func (r *reservation) listen() (*net.TCPListener, error) {
	return net.ListenTCP("tcp4", r.addr)
}

func (r *reservation) close() error { return syscall.Close(r.fd) }
