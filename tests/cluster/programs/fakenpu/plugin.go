package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint         = "ascend910.sock"
	watchPeriod      = time.Second
	registerDeadline = 10 * time.Second
)

// plugin answers the kubelet for all devices of the node.
type plugin struct {
	api.UnimplementedDevicePluginServer
	devices *devices
	// stopped ends open ListAndWatch streams when this server gives way to the
	// next one; gRPC's own stop would wait for them for ever.
	stopped chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		devices, changed := p.devices.list()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-p.stopped:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate returns what the Ascend plug-in returns beside the Ascend Docker
// Runtime: the physical ids, and no device nodes (the runtime adds those).
func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		var ids []string
		for _, name := range sortByIndex(container.DevicesIds) {
			ids = append(ids, strconv.Itoa(physicalIndex(name)))
		}
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{
				"ASCEND_VISIBLE_DEVICES": strings.Join(ids, ","),
				"ASCEND_RUNTIME_OPTIONS": "",
			},
		})
	}
	return response, nil
}

func (p *plugin) GetPreferredAllocation(
	context.Context, *api.PreferredAllocationRequest,
) (*api.PreferredAllocationResponse, error) {
	return nil, errors.New("GetPreferredAllocation is not supported by the Ascend plug-in")
}

func (p *plugin) PreStartContainer(
	context.Context, *api.PreStartContainerRequest,
) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}

// servePlugin serves and registers for as long as ctx lives, and begins anew
// whenever the kubelet restarts: a restarting kubelet deletes every plug-in's socket.
func servePlugin(ctx context.Context, kubeletRoot string, devices *devices) error {
	folder := filepath.Join(kubeletRoot, "device-plugins")
	for ctx.Err() == nil {
		if err := serveOnce(ctx, folder, devices); err != nil {
			slog.Warn("the kubelet does not take the plug-in yet", "folder", folder, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPeriod):
		}
	}
	return nil
}

func serveOnce(ctx context.Context, folder string, devices *devices) error {
	kubelet, err := os.Stat(filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		return err
	}
	socket := filepath.Join(folder, endpoint)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	served := &plugin{devices: devices, stopped: make(chan struct{})}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, served)
	defer server.Stop()
	defer close(served.stopped)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := register(ctx, folder); err != nil {
		return err
	}
	slog.Info("registered", "resource", resourceName, "socket", socket)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-time.After(watchPeriod):
			now, err := os.Stat(filepath.Join(folder, "kubelet.sock"))
			if err != nil || !os.SameFile(kubelet, now) {
				return errors.New("the kubelet's socket was made anew")
			}
			if _, err := os.Stat(socket); err != nil {
				return fmt.Errorf("the plug-in's socket is gone: %w", err)
			}
		}
	}
}

func register(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: resourceName,
	})
	return err
}
