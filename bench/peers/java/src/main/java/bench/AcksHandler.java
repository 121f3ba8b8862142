package bench;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import io.netty.handler.codec.TooLongFrameException;
import java.util.List;

/** Each read is answered by one acknowledgement of all messages that became whole by it. */
final class AcksHandler extends ByteToMessageDecoder {
    private static final int HEAD = 12;
    private static final int PAYLOAD = 1_000_000;

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        int last = 0;
        int count = 0;
        int at = in.readerIndex();
        int end = in.writerIndex();
        while (end - at >= HEAD) {
            int size = in.getIntLE(at + 8);
            if (size < 0 || size > PAYLOAD) {
                throw new TooLongFrameException("a payload of " + Integer.toUnsignedString(size) + " bytes");
            }
            if (end - at - HEAD < size) {
                break;
            }
            // As long as sizes are the same, where the next message begins does not wait for what this one says.
            do {
                last = at;
                at += HEAD + size;
                count++;
            } while (end - at - HEAD >= size && in.getIntLE(at + 8) == size);
        }
        in.readerIndex(at);
        if (count > 0) {
            ByteBuf ack = context.alloc().directBuffer(HEAD).writeLongLE(in.getLongLE(last)).writeIntLE(count - 1);
            context.writeAndFlush(ack, context.voidPromise());
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
