package bench;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import java.util.function.Supplier;

/** Netty with native epoll: an event loop for each CPU, which accepts as well. */
public final class Main {
    /** How much is asked for in one read of a stream of messages. */
    private static final int READ = 256 * 1024;

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 2) {
            throw new IllegalArgumentException("usage: ping|http|acks PORT");
        }
        Supplier<ChannelHandler> handler = switch (arguments[0]) {
            case "ping" -> PingHandler::new;
            case "http" -> HttpHandler::new;
            case "acks" -> AcksHandler::new;
            default -> throw new IllegalArgumentException("usage: ping|http|acks PORT");
        };
        EventLoopGroup loops =
                new MultiThreadIoEventLoopGroup(Runtime.getRuntime().availableProcessors(), EpollIoHandler.newFactory());
        ServerBootstrap bootstrap = new ServerBootstrap()
                .group(loops)
                .channel(EpollServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 4096)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        channel.pipeline().addLast(handler.get());
                    }
                });
        if (arguments[0].equals("acks")) {
            bootstrap.childOption(ChannelOption.RECVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(READ));
        }
        bootstrap.bind("127.0.0.1", Integer.parseInt(arguments[1])).sync().channel().closeFuture().sync();
    }

    private Main() {}
}
