package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/mongostream/streamer/client"
)

//go:embed page.html
var page embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	node := flag.String("node", "127.0.0.1:9090", "address of a node's gRPC")
	listen := flag.String("listen", "127.0.0.1:8090", "address for browsers")
	flag.Parse()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err == nil {
		logger.Info("open http://" + listener.Addr().String() + "/?db=shop&coll=orders") //nolint:sloglint // an address to click on
		err = serve(ctx, listener, client.Config{Addresses: []string{*node}, Subscriber: "browsers", Start: client.StartNow, Logger: logger})
	}
	if err != nil {
		logger.Error("the gateway has ended", "error", err)
		os.Exit(1) //nolint:forbidigo,gocritic // it is main; stop has nothing left to undo
	}
}

// serve serves browsers until the context ends.
func serve(ctx context.Context, listener net.Listener, cfg client.Config) error {
	g, err := newGateway(cfg)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, page, "page.html") })
	mux.HandleFunc("GET /changes", g.connect)
	ctx, stop := context.WithCancel(ctx)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() {
		defer stop() // without browsers there is nothing to run for
		served <- server.Serve(listener)
	}()
	err = g.changes.Run(ctx)
	stop() // the browsers leave
	_ = server.Close()
	if ended := <-served; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		return ended
	}
	return err
}
