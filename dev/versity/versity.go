package devversity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Access and Secret are the credentials of every server.
const (
	Access = "streamer-test"
	Secret = "not-a-secret-of-anybody"
	Bucket = "log"
)

// A Server is a running versitygw with one bucket.
type Server struct {
	binary, root, address string

	cmd  *exec.Cmd
	dead chan struct{}
}

// Start starts the server of a binary with its objects below a folder, at a free port of 127.0.0.1.
func Start(binary, root string) (*Server, error) {
	if err := os.MkdirAll(filepath.Join(root, Bucket), 0o700); err != nil {
		return nil, fmt.Errorf("make bucket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	s := &Server{binary: binary, root: root, address: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	return s, s.Restart()
}

// Restart starts the server again after Kill, at its address, and returns when it accepts
// connections.
func (s *Server) Restart() error {
	s.cmd = exec.Command(s.binary, "--port", s.address, "--quiet", "--keep-alive", "posix", s.root) //nolint:noctx // Kill ends it
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+Access, "ROOT_SECRET_KEY="+Secret)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start versitygw: %w", err)
	}
	s.dead = make(chan struct{})
	go func(cmd *exec.Cmd, dead chan struct{}) {
		_ = cmd.Wait() // it is killed
		close(dead)
	}(s.cmd, s.dead)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.dead:
			return errors.New("versitygw ended")
		case <-ctx.Done():
			return fmt.Errorf("versitygw does not accept connections: %w", err)
		case <-again.C:
		}
	}
}

// Kill kills the server at once.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.dead
}

// Signal stops and continues the server, for instance.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Address is the host and port of the server.
func (s *Server) Address() string { return s.address }

// URL is the URL of a prefix in the bucket, as retention.store has it.
func (s *Server) URL(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=http://%s", Bucket, prefix, s.address)
}
