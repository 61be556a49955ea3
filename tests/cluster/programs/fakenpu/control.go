package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

const controlDeadline = 5 * time.Second

// ask sends one command to a running plug-in and prints its answer.
func ask(path string, words []string) error {
	connection, err := net.DialTimeout("unix", path, controlDeadline)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(controlDeadline)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(connection, strings.Join(words, " ")); err != nil {
		return err
	}
	said, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	if failed, found := strings.CutPrefix(string(said), "error: "); found {
		return errors.New(strings.TrimSpace(failed))
	}
	fmt.Print(string(said))
	return nil
}

func listenControl(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// serveControl takes one command a connection: `list`, `healthy DEVICE` or
// `unhealthy DEVICE`; the answer is the list, `ok`, or `error: …`.
func serveControl(ctx context.Context, listener net.Listener, devices *devices) {
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			if err := connection.SetDeadline(time.Now().Add(controlDeadline)); err != nil {
				return
			}
			line, err := bufio.NewReader(connection).ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintln(connection, answer(strings.Fields(line), devices))
		}()
	}
}

func answer(words []string, devices *devices) string {
	switch {
	case len(words) == 1 && words[0] == "list":
		var lines []string
		all, _ := devices.list()
		for _, device := range all {
			lines = append(lines, device.ID+" "+device.Health)
		}
		return strings.Join(lines, "\n")
	case len(words) == 2 && (words[0] == "healthy" || words[0] == "unhealthy"):
		if err := devices.set(words[1], words[0] == "healthy"); err != nil {
			return "error: " + err.Error()
		}
		slog.Info("health changed", "device", words[1], "health", words[0])
		return "ok"
	}
	return fmt.Sprintf("error: %q is no command; say `list`, `healthy DEVICE` or `unhealthy DEVICE`",
		strings.Join(words, " "))
}
